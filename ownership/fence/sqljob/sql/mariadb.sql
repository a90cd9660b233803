CREATE TABLE IF NOT EXISTS leasehold_job (
  id           BIGINT         NOT NULL AUTO_INCREMENT PRIMARY KEY,
  keyspace     VARBINARY(255) NOT NULL,
  partition_id BIGINT         NOT NULL,
  state        VARBINARY(8)   NOT NULL DEFAULT 'open' CHECK (state IN ('open', 'claimed', 'done', 'failed')),
  token        BIGINT         NOT NULL DEFAULT 0 CHECK (token BETWEEN 0 AND 9007199254740991),
  owner        VARBINARY(255) NOT NULL DEFAULT '',
  attempts     BIGINT         NOT NULL DEFAULT 0,
  payload      LONGBLOB,
  INDEX leasehold_job_claim (keyspace, partition_id, state, id)
) ENGINE = InnoDB;
