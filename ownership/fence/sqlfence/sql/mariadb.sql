CREATE TABLE IF NOT EXISTS leasehold_fence (
  keyspace     VARBINARY(255) NOT NULL,
  partition_id BIGINT         NOT NULL,
  token        BIGINT         NOT NULL CHECK (token BETWEEN 1 AND 9007199254740991),
  owner        VARBINARY(255) NOT NULL,
  claimed_at   DATETIME(3)    NOT NULL,
  PRIMARY KEY (keyspace, partition_id)
) ENGINE = InnoDB;
