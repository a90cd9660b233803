CREATE TABLE IF NOT EXISTS leasehold_once (
  once_key   TEXT   NOT NULL PRIMARY KEY CHECK (typeof(once_key) = 'text' AND length(once_key) > 0),
  request    BLOB   NOT NULL CHECK (length(request) = 32),
  status     TEXT   NOT NULL DEFAULT 'running' CHECK (status IN ('running', 'done')),
  result     BLOB,
  token      BIGINT CHECK (token IS NULL OR typeof(token) = 'integer' AND token BETWEEN 1 AND 9007199254740991),
  owner      TEXT,
  created_at TEXT   NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))
);
CREATE INDEX IF NOT EXISTS leasehold_once_created_at ON leasehold_once (created_at);
