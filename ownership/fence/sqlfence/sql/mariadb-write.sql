-- Statements for MariaDB and MySQL, see README.md. The tables written are examples:
--   accounts (id, balance, token, owner)   with a token of its own
--   journal  (account, amount)             guarded by leasehold_fence

-- name: claim
-- ? keyspace, partition, token, owner. Then read the row FOR UPDATE in the same
-- transaction: it is claimed if it holds your token and owner.
INSERT INTO leasehold_fence (keyspace, partition_id, token, owner, claimed_at)
VALUES (?, ?, ?, ?, UTC_TIMESTAMP(3))
ON DUPLICATE KEY UPDATE
  claimed_at = IF(VALUES(token) > token, VALUES(claimed_at), claimed_at),
  owner = IF(VALUES(token) > token, VALUES(owner), owner),
  token = GREATEST(token, VALUES(token));

-- name: guard
-- First in the transaction that writes. ? keyspace, partition, token, owner.
-- Returns one row, or none: then look at the row, and if it is not above you,
-- claim and call it again.
SELECT 1 FROM leasehold_fence
WHERE keyspace = ? AND partition_id = ? AND token = ? AND owner = ?
LOCK IN SHARE MODE;

-- name: claim own token
-- For rows that keep a token of their own: ? token, owner, id, token, token, owner.
UPDATE accounts SET token = ?, owner = ?
WHERE id = ? AND (token < ? OR (token = ? AND owner = ?));

-- name: write own token
-- ? balance, token, owner, id, token, token, owner. No row found: fenced.
UPDATE accounts SET balance = ?, token = ?, owner = ?
WHERE id = ? AND (token < ? OR (token = ? AND owner = ?));

-- name: update locking the fence
-- ? keyspace, partition, token, owner, balance, id. No row found: fenced (both
-- rows are counted if it was not). The
-- assignment to f.token makes the fence row one of those that are locked.
UPDATE leasehold_fence AS f
JOIN accounts AS a ON f.keyspace = ? AND f.partition_id = ? AND f.token = ? AND f.owner = ?
SET a.balance = ?, f.token = f.token
WHERE a.id = ?;

-- name: insert locking the fence
-- ? account, amount, keyspace, partition, token, owner. No row inserted: fenced.
INSERT INTO journal (account, amount)
SELECT ?, ? FROM leasehold_fence
WHERE keyspace = ? AND partition_id = ? AND token = ? AND owner = ?
LOCK IN SHARE MODE;
