CREATE TABLE IF NOT EXISTS leasehold_job (
  id           INTEGER PRIMARY KEY AUTOINCREMENT,
  keyspace     TEXT   NOT NULL,
  partition_id BIGINT NOT NULL,
  state        TEXT   NOT NULL DEFAULT 'open' CHECK (state IN ('open', 'claimed', 'done', 'failed')),
  token        BIGINT NOT NULL DEFAULT 0 CHECK (typeof(token) = 'integer' AND token BETWEEN 0 AND 9007199254740991),
  owner        TEXT   NOT NULL DEFAULT '',
  attempts     BIGINT NOT NULL DEFAULT 0,
  payload      BLOB
);
CREATE INDEX IF NOT EXISTS leasehold_job_claim ON leasehold_job (keyspace, partition_id, state, id);
