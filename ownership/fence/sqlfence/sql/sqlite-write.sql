-- Statements for SQLite, see README.md. The tables written are examples:
--   accounts (id, balance, token, owner)   with a token of its own
--   journal  (account, amount)             guarded by leasehold_fence

-- name: claim
-- ? keyspace, partition, token, owner. Returns the row if claimed, none if refused.
INSERT INTO leasehold_fence (keyspace, partition_id, token, owner, claimed_at)
VALUES (?, ?, ?, ?, strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))
ON CONFLICT (keyspace, partition_id) DO UPDATE
SET token = excluded.token, owner = excluded.owner, claimed_at = excluded.claimed_at
WHERE excluded.token > leasehold_fence.token
   OR (excluded.token = leasehold_fence.token AND excluded.owner = leasehold_fence.owner)
RETURNING token, owner;

-- name: guard
-- In a transaction begun with BEGIN IMMEDIATE. ? keyspace, partition, token,
-- owner. Returns one row, or none: then look at the row, and if it is not above
-- you, claim and call it again.
SELECT 1 FROM leasehold_fence
WHERE keyspace = ? AND partition_id = ? AND token = ? AND owner = ?;

-- name: claim own token
-- For rows that keep a token of their own: ? token, owner, id, token, token, owner.
UPDATE accounts SET token = ?, owner = ?
WHERE id = ? AND (token < ? OR (token = ? AND owner = ?));

-- name: write own token
-- ? balance, token, owner, id, token, token, owner. No row updated: fenced.
UPDATE accounts SET balance = ?, token = ?, owner = ?
WHERE id = ? AND (token < ? OR (token = ? AND owner = ?));

-- name: update locking the fence
-- ? balance, id, keyspace, partition, token, owner. No row updated: fenced. A
-- statement that writes holds SQLite's one lock, so the sub-select is enough.
UPDATE accounts SET balance = ? WHERE id = ?
AND EXISTS (SELECT 1 FROM leasehold_fence WHERE keyspace = ? AND partition_id = ? AND token = ? AND owner = ?);

-- name: insert locking the fence
-- ? account, amount, keyspace, partition, token, owner. No row inserted: fenced.
INSERT INTO journal (account, amount)
SELECT ?, ? FROM leasehold_fence
WHERE keyspace = ? AND partition_id = ? AND token = ? AND owner = ?;
