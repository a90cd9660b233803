CREATE TABLE IF NOT EXISTS leasehold_once (
  once_key   TEXT COLLATE "C" NOT NULL PRIMARY KEY CHECK (octet_length(once_key) BETWEEN 1 AND 255),
  request    BYTEA            NOT NULL CHECK (octet_length(request) = 32),
  status     TEXT COLLATE "C" NOT NULL DEFAULT 'running' CHECK (status IN ('running', 'done')),
  result     BYTEA,
  token      BIGINT           CHECK (token BETWEEN 1 AND 9007199254740991),
  owner      TEXT COLLATE "C",
  created_at TIMESTAMPTZ      NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX IF NOT EXISTS leasehold_once_created_at ON leasehold_once (created_at);
