-- What the target of the demonstration was told, each tick once.
CREATE TABLE IF NOT EXISTS fired (
  position BIGSERIAL   PRIMARY KEY,
  job      TEXT        NOT NULL,
  tick     TIMESTAMPTZ NOT NULL,
  at       TIMESTAMPTZ NOT NULL DEFAULT clock_timestamp()
);
