-- What shall happen, and when.
CREATE TABLE IF NOT EXISTS cron_job (
  name       TEXT   PRIMARY KEY,
  hash       BIGINT NOT NULL,              -- of the name: which partition the job belongs to
  schedule   TEXT   NOT NULL,              -- "*/5 * * * *", or with seconds "*/10 * * * * *"
  zone       TEXT   NOT NULL,              -- of the IANA database
  missed     TEXT   NOT NULL CHECK (missed IN ('skip', 'once', 'all')),
  max_missed INT    NOT NULL CHECK (max_missed > 0),
  target     TEXT   NOT NULL,              -- URL that each tick is posted to
  next_tick  TIMESTAMPTZ                   -- the first that is not decided; NULL: look at the schedule
);
CREATE INDEX IF NOT EXISTS cron_job_hash ON cron_job (hash);

-- The ticks that were decided to fire. The primary key is the promise: a job
-- has a tick once, whoever decides it and however often.
CREATE TABLE IF NOT EXISTS cron_tick (
  job   TEXT        NOT NULL REFERENCES cron_job ON DELETE CASCADE,
  tick  TIMESTAMPTZ NOT NULL,
  state TEXT        NOT NULL DEFAULT 'due' CHECK (state IN ('due', 'done')),
  token BIGINT      NOT NULL, -- of the worker that decided it, or has dispatched it
  PRIMARY KEY (job, tick)
);
CREATE INDEX IF NOT EXISTS cron_tick_due ON cron_tick (job, tick) WHERE state = 'due';

-- The one clock that decides what is due; those of the workers may differ.
CREATE OR REPLACE FUNCTION cron_now() RETURNS TIMESTAMPTZ LANGUAGE sql AS 'SELECT clock_timestamp()';
