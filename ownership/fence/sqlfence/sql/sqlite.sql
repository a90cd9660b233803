CREATE TABLE IF NOT EXISTS leasehold_fence (
  keyspace     TEXT   NOT NULL CHECK (typeof(keyspace) = 'text'),
  partition_id BIGINT NOT NULL CHECK (typeof(partition_id) = 'integer'),
  token        BIGINT NOT NULL CHECK (typeof(token) = 'integer' AND token BETWEEN 1 AND 9007199254740991),
  owner        TEXT   NOT NULL CHECK (typeof(owner) = 'text'),
  claimed_at   TEXT   NOT NULL,
  PRIMARY KEY (keyspace, partition_id)
) WITHOUT ROWID;
