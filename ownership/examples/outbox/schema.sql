-- The outbox. Delivered events stay until the relay trims them.
CREATE TABLE IF NOT EXISTS outbox (
  partition_id INT         NOT NULL,
  seq          BIGINT      NOT NULL, -- 1, 2, 3 … in each partition, without gaps
  key          TEXT        NOT NULL, -- of the aggregate that the event is about
  payload      JSONB       NOT NULL,
  created_at   TIMESTAMPTZ NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (partition_id, seq)
);

-- One row per partition. Its lock lets the events of a partition commit in the
-- order of their numbers; see publish.go.
CREATE TABLE IF NOT EXISTS outbox_partition (
  partition_id INT    PRIMARY KEY,
  last_seq     BIGINT NOT NULL DEFAULT 0
) WITH (fillfactor = 50);

-- How far each partition has been delivered. Only relays write it, so that they
-- and the producers do not wait for each other.
CREATE TABLE IF NOT EXISTS outbox_progress (
  partition_id INT    PRIMARY KEY,
  delivered    BIGINT NOT NULL DEFAULT 0
) WITH (fillfactor = 50);

-- The business table of the demonstration.
CREATE TABLE IF NOT EXISTS account (
  key     TEXT   PRIMARY KEY,
  version BIGINT NOT NULL
);
