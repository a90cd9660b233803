-- What the receiver has accepted, in the order in which it did.
CREATE TABLE IF NOT EXISTS inbox (
  position     BIGSERIAL PRIMARY KEY,
  partition_id INT    NOT NULL,
  seq          BIGINT NOT NULL,
  key          TEXT   NOT NULL,
  payload      JSONB  NOT NULL,
  token        BIGINT NOT NULL, -- 0 without the fence
  owner        TEXT   NOT NULL
);

-- The last number of each partition. The highest token is beside it, in
-- leasehold_fence, and changes in the same transactions.
CREATE TABLE IF NOT EXISTS inbox_partition (
  partition_id INT    PRIMARY KEY,
  last_seq     BIGINT NOT NULL
);
