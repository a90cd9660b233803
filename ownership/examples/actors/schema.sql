-- The state of each tenant. While an owner runs, the same is in its memory.
CREATE TABLE IF NOT EXISTS tenant (
  name  TEXT   PRIMARY KEY,
  value BIGINT NOT NULL
);

-- What each request was answered with, for those who ask again. Delete what is
-- older than anybody's last retry.
CREATE TABLE IF NOT EXISTS tenant_request (
  tenant     TEXT        NOT NULL REFERENCES tenant,
  request_id TEXT        NOT NULL,
  value      BIGINT      NOT NULL,
  created_at TIMESTAMPTZ NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (tenant, request_id)
);
