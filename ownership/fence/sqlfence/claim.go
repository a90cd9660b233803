package sqlfence

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/fence"
)

// How Claim waits.
const (
	// claimGrace is how much longer a claim waits than a stopped writer may
	// idle in its transaction.
	claimGrace = 2 * time.Second
	// nameGrace is what it leaves of a context's time, to find out who is in
	// the way and to say so.
	nameGrace = 500 * time.Millisecond
	// claimWork is what it is granted for each stamp besides the waiting.
	claimWork = 200 * time.Microsecond
	// maxConflicts is how often a claim is begun again that lost a deadlock or
	// a serialization conflict.
	maxConflicts = 5
	// maxTurnstiles is for how many keys a claim holds back new writers.
	maxTurnstiles = 256
)

// Claim implements fence.Guard. All stamps are claimed in one transaction, in
// sorted order: PostgreSQL takes them in one statement, the others take 500 in
// one. When it returns a *fence.ClaimError, all stamps that are not in it are
// claimed and committed; after any other error none is, but for
// ErrOutcomeUnknown, after which claiming again tells.
//
// Claim waits for writes in flight, two seconds longer than the TTL (see
// [WithTTL]) or to half a second before the deadline of ctx, whichever is less,
// and then gives up with a *BlockedError that names whoever is in the way. It
// looks them up on a second connection, from a goroutine that ends with the
// call. A deadlock or serialization failure is tried again here: a claim
// repeated is a claim.
func (f *Fence) Claim(ctx context.Context, stamps []fence.Stamp) error {
	if err := validate(stamps...); err != nil {
		return err
	}
	if err := f.dialect.known(); err != nil {
		return err
	}
	if len(stamps) == 0 {
		return nil
	}
	refused, err := f.claim(ctx, fence.Sorted(stamps))
	if err != nil {
		return fmt.Errorf("claim %d partitions: %w", len(stamps), explain(err))
	}
	if len(refused) > 0 {
		err = &fence.ClaimError{Refused: refused}
	}
	fence.Count(f.counter, len(stamps), err)
	return err
}

// claim tries until it is through or its time is over.
//
// On PostgreSQL a claim can starve: writers share the row's lock, new ones join
// those that hold it, and no lock_timeout ends the wait because each holder is
// waited for by itself. So every guard passes a turnstile first, an advisory
// lock of its key that it takes shared, and a claim that was blocked closes it
// before its next try: new writers queue behind the claim, and those inside
// leave. The first try goes without, and the following only close those of
// rows that are locked, so that locks in the server's shared memory stay few.
func (f *Fence) claim(ctx context.Context, sorted []fence.Stamp) ([]*fence.StaleError, error) {
	work := time.Duration(len(sorted)) * claimWork
	begun, limit := time.Now(), f.bound(ctx)+claimGrace+work
	if d, ok := ctx.Deadline(); ok {
		limit = max(min(limit, time.Until(d)-nameGrace), time.Millisecond)
	}
	t := try{f: f, sorted: sorted}
	conflicts := 0
	for n := 0; ; n++ {
		left := limit - time.Since(begun)
		t.wait, t.total, t.close = left, left, n > 0
		if f.dialect == PostgreSQL {
			t.total = min(left, time.Second<<n+work)
			if n == 0 {
				t.wait = min(left, 250*time.Millisecond)
			}
		}
		refused, err := t.run(ctx)
		switch classify(err) {
		case conflict:
			if conflicts++; conflicts > maxConflicts || ctx.Err() != nil {
				return nil, err
			}
		case blocked:
			if left = limit - time.Since(begun); left <= 10*time.Millisecond || f.dialect != PostgreSQL {
				return nil, &BlockedError{Waited: time.Since(begun), Blockers: t.blockers, Err: err}
			}
		default:
			return refused, err
		}
	}
}

// try is one transaction of a claim.
type try struct {
	f      *Fence
	sorted []fence.Stamp
	wait   time.Duration // for one lock
	total  time.Duration // for the statement
	close  bool          // the turnstiles of rows that are locked

	blockers []Blocker // found while it waited
}

func (t *try) run(ctx context.Context) (refused []*fence.StaleError, err error) {
	// Before the transaction: in SQLite one that reads first might not get to
	// write.
	if err := t.f.verify(ctx, t.f.db); err != nil {
		return nil, err
	}
	err = t.f.db.InTx(ctx, func(tx Queryer) error {
		if err := t.prepare(ctx, tx); err != nil {
			return err
		}
		watch, err := t.watch(ctx, tx)
		if err != nil {
			return err
		}
		if t.close && t.f.dialect == PostgreSQL {
			err = t.closeTurnstiles(ctx, tx)
		}
		if err == nil {
			refused, err = t.raise(ctx, tx)
		}
		if found := watch(); len(found) > 0 {
			t.blockers = found
		}
		return err
	})
	return refused, err
}

// prepare bounds the transaction's waiting and idling: a claimer may be stopped
// too. SQLite's busy timeout belongs to the connection.
func (t *try) prepare(ctx context.Context, tx Queryer) error {
	bound := t.f.bound(ctx)
	switch t.f.dialect {
	case PostgreSQL:
		_, err := tx.Exec(ctx, `SELECT set_config('lock_timeout', $1::text, true), set_config('statement_timeout', $2::text, true), set_config('idle_in_transaction_session_timeout', $3::text, true)`,
			[]any{ms(t.wait), ms(t.total), ms(bound)})
		return err
	case MariaDB:
		var idle int64
		if err := tx.Query(ctx, `SELECT @@idle_transaction_timeout`, nil, func(scan func(...any) error) error { return scan(&idle) }); err != nil {
			return err
		}
		return boundIdle(ctx, tx, idle, bound)
	}
	return nil
}

// closeTurnstiles makes new writers of the rows that are locked wait for this
// transaction.
func (t *try) closeTurnstiles(ctx context.Context, tx Queryer) error {
	keys := make([]row, len(t.sorted))
	for i, s := range t.sorted {
		keys[i] = rowOf(s.Key())
	}
	// Which rows are locked shows by locking those that are not. The savepoint
	// gives them back: to wait with them in hand would be out of order.
	if _, err := tx.Exec(ctx, `SAVEPOINT leasehold_busy`, nil); err != nil {
		return err
	}
	var busy []row
	err := tx.Query(ctx, fmt.Sprintf(`WITH idle AS MATERIALIZED (SELECT keyspace, partition_id FROM leasehold_fence WHERE (keyspace, partition_id) IN %[1]s FOR NO KEY UPDATE SKIP LOCKED)
SELECT keyspace, partition_id FROM leasehold_fence WHERE (keyspace, partition_id) IN %[1]s EXCEPT SELECT keyspace, partition_id FROM idle
ORDER BY keyspace, partition_id LIMIT %[2]d`, keysPostgreSQL, maxTurnstiles), []any{inJSON(keys)}, func(scan func(...any) error) error {
		busy = append(busy, row{})
		return scan(&busy[len(busy)-1].Keyspace, &busy[len(busy)-1].Partition)
	})
	if err != nil {
		return fmt.Errorf("look for locked rows: %w", err)
	}
	if _, err := tx.Exec(ctx, `ROLLBACK TO SAVEPOINT leasehold_busy`, nil); err != nil {
		return err
	}
	if len(busy) == 0 {
		return nil
	}
	// In the order of the hashes, so that two claims that close the same ones,
	// or two keys with one hash, do so in the same order.
	_, err = tx.Exec(ctx, `SELECT count(pg_advisory_xact_lock(1818583411, h) IS NULL) FROM (
  SELECT DISTINCT hashtext(keyspace || '/' || partition_id::text) AS h FROM json_to_recordset($1::text::json) AS busy (keyspace text, partition_id bigint) ORDER BY 1
) AS hashes`, []any{inJSON(busy)})
	return err
}

// raise claims all stamps and returns those that were refused.
func (t *try) raise(ctx context.Context, tx Queryer) ([]*fence.StaleError, error) {
	var refused []*fence.StaleError
	for sorted, chunk := t.sorted, t.f.dialect.chunk(); len(sorted) > 0; {
		n := 0
		var unique []fence.Stamp // the highest token of each key
		for ; n < len(sorted); n++ {
			if n == 0 || sorted[n].Key() != sorted[n-1].Key() {
				if len(unique) == chunk {
					break
				}
				unique = append(unique, sorted[n])
			}
		}
		marks, err := t.f.raise(ctx, tx, unique, t.wait+time.Second-1) // MariaDB counts whole seconds, downwards
		if err != nil {
			return nil, err
		}
		for _, s := range sorted[:n] {
			var stale *fence.StaleError
			if errors.As(fence.Check(marks[rowOf(s.Key())], s), &stale) {
				refused = append(refused, stale)
			}
		}
		sorted = sorted[n:]
	}
	return refused, nil
}
