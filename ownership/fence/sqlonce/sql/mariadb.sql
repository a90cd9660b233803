CREATE TABLE IF NOT EXISTS leasehold_once (
  once_key   VARBINARY(255) NOT NULL PRIMARY KEY CHECK (length(once_key) > 0),
  request    BINARY(32)     NOT NULL,
  status     VARBINARY(8)   NOT NULL DEFAULT 'running' CHECK (status IN ('running', 'done')),
  result     MEDIUMBLOB,
  token      BIGINT         CHECK (token BETWEEN 1 AND 9007199254740991),
  owner      VARBINARY(255),
  created_at DATETIME(3)    NOT NULL DEFAULT (UTC_TIMESTAMP(3)),
  INDEX leasehold_once_created_at (created_at)
) ENGINE = InnoDB;
