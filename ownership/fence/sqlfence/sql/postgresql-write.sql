-- Statements for PostgreSQL, see README.md. The tables written are examples:
--   accounts (id, balance, token, owner)   with a token of its own
--   journal  (account, amount)             guarded by leasehold_fence

-- name: claim
-- $1 keyspace, $2 partition, $3 token, $4 owner. Returns the row if claimed, none if refused.
INSERT INTO leasehold_fence (keyspace, partition_id, token, owner, claimed_at)
VALUES ($1, $2, $3, $4, clock_timestamp())
ON CONFLICT (keyspace, partition_id) DO UPDATE
SET token = excluded.token, owner = excluded.owner, claimed_at = excluded.claimed_at
WHERE excluded.token > leasehold_fence.token
   OR (excluded.token = leasehold_fence.token AND excluded.owner = leasehold_fence.owner)
RETURNING token, owner;

-- name: guard
-- First in the transaction that writes. $1 keyspace, $2 partition, $3 token,
-- $4 owner, $5 the lease's TTL such as '10s'. Returns one row, or none: then
-- look at the row, and if it is not above you, claim and call it again.
SELECT 1 FROM leasehold_fence
WHERE keyspace = $1 AND partition_id = $2 AND token = $3 AND owner = $4
  AND (SELECT set_config('lock_timeout', $5, true) || set_config('idle_in_transaction_session_timeout', $5, true)) IS NOT NULL
  AND (SELECT pg_advisory_xact_lock_shared(1818583411, hashtext($1::text || '/' || $2::bigint::text))) IS NOT NULL
FOR SHARE;

-- name: claim own token
-- For rows that keep a token of their own: $1 id, $2 token, $3 owner.
UPDATE accounts SET token = $2, owner = $3
WHERE id = $1 AND (token < $2 OR (token = $2 AND owner = $3));

-- name: write own token
-- $1 id, $2 token, $3 owner, $4 balance. No row updated: fenced.
UPDATE accounts SET balance = $4, token = $2, owner = $3
WHERE id = $1 AND (token < $2 OR (token = $2 AND owner = $3));

-- name: update locking the fence
-- $1 keyspace, $2 partition, $3 token, $4 owner, $5 id, $6 balance. No row updated: fenced.
WITH fence AS MATERIALIZED (
  SELECT 1 FROM leasehold_fence
  WHERE keyspace = $1 AND partition_id = $2 AND token = $3 AND owner = $4
  FOR SHARE
)
UPDATE accounts SET balance = $6 FROM fence WHERE id = $5;

-- name: insert locking the fence
-- $1 keyspace, $2 partition, $3 token, $4 owner, $5 account, $6 amount. No row inserted: fenced.
WITH fence AS MATERIALIZED (
  SELECT 1 FROM leasehold_fence
  WHERE keyspace = $1 AND partition_id = $2 AND token = $3 AND owner = $4
  FOR SHARE
)
INSERT INTO journal (account, amount) SELECT $5::bigint, $6::bigint FROM fence;
