CREATE TABLE IF NOT EXISTS leasehold_fence (
  keyspace     TEXT COLLATE "C" NOT NULL,
  partition_id BIGINT           NOT NULL,
  token        BIGINT           NOT NULL CHECK (token BETWEEN 1 AND 9007199254740991),
  owner        TEXT COLLATE "C" NOT NULL,
  claimed_at   TIMESTAMPTZ      NOT NULL,
  PRIMARY KEY (keyspace, partition_id)
) WITH (fillfactor = 50);
