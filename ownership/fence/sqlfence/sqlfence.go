package sqlfence

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/leasehold-dev/leasehold/ownership/fence"
)

// DefaultTTL bounds a guarded transaction's waiting and idling where the TTL of
// its lease is not known and no [WithTTL] was given.
const DefaultTTL = 10 * time.Second

// maxName is the longest keyspace or owner in bytes, as in fence.MaxResourceLen.
const maxName = 255

// Fence is a guard over one database. It is safe for concurrent use and holds
// no connection between calls.
type Fence struct {
	db      Database
	sql     *sql.DB // nil if made by Over
	dialect Dialect
	counter fence.Counter
	ttl     time.Duration

	columns, rows atomic.Bool // these parts of the table have been looked at
}

var _ fence.Guard = (*Fence)(nil)

// Option changes a Fence.
type Option func(*Fence)

// WithCounter tells c of every decision, for metrics and alerts.
func WithCounter(c fence.Counter) Option { return func(f *Fence) { f.counter = c } }

// WithTTL is the TTL of the leases whose writes are guarded; [DefaultTTL] if not
// given. A context made by fence.NewContext, as the handlers of the worker
// library have it, may say less. It bounds how long a guarded transaction waits
// for a lock, and how long it may sit idle while others wait for it.
func WithTTL(d time.Duration) Option {
	return func(f *Fence) {
		if d > 0 {
			f.ttl = d
		}
	}
}

// New makes a guard over the table leasehold_fence of db. It does not touch
// the database; Migrate makes the table.
func New(db *sql.DB, dialect Dialect, opts ...Option) *Fence {
	f := Over(stdDB{std{db}, db, dialect.isolation()}, dialect, opts...)
	f.sql = db
	return f
}

// Over makes a guard for a driver without database/sql, see [Database].
func Over(db Database, dialect Dialect, opts ...Option) *Fence {
	f := &Fence{db: db, dialect: dialect, ttl: DefaultTTL}
	for _, o := range opts {
		o(f)
	}
	return f
}

// bound is how long a guarded transaction may wait or idle.
func (f *Fence) bound(ctx context.Context) time.Duration {
	if ttl := fence.TTLFromContext(ctx); ttl > 0 {
		return min(ttl, f.ttl)
	}
	return f.ttl
}

// Guard compares the stamp with what the table has seen, inside the caller's
// transaction, and keeps the mark from rising until that ends: a newer claim
// waits for it. Only a stamp that is new to the table writes a row. Call it
// first in the transaction that does the write, and not inside a savepoint: a
// rollback to the savepoint takes the guard back, see the package comment.
//
// A refusal is a *fence.StaleError: roll back and stop working on that
// partition. After any other error nothing has been decided; roll back as well,
// and try again if [Retryable] says so. A nil or finished transaction is
// ErrNoTransaction.
func (f *Fence) Guard(ctx context.Context, tx *sql.Tx, s fence.Stamp) error {
	if tx == nil {
		return fmt.Errorf("guard %s: %w, not nil", s.Key(), ErrNoTransaction)
	}
	return f.GuardOver(ctx, std{tx}, s)
}

// GuardOver is Guard for a driver without database/sql, see [Queryer]. tx must
// be a transaction.
func (f *Fence) GuardOver(ctx context.Context, tx Queryer, s fence.Stamp) error {
	if err := validate(s); err != nil {
		return err
	}
	mark, err := f.guard(ctx, tx, s)
	if err != nil {
		return fmt.Errorf("guard %s: %w", s.Key(), explain(err))
	}
	err = fence.Check(mark, s)
	fence.Count(f.counter, 1, err)
	return err
}

// guard returns the mark that decides: the stamp itself, if it is accepted.
func (f *Fence) guard(ctx context.Context, tx Queryer, s fence.Stamp) (fence.Mark, error) {
	if err := f.dialect.known(); err != nil {
		return fence.Mark{}, err
	}
	if f.dialect != SQLite { // there a transaction that reads first might not get to write
		if err := f.verifyColumns(ctx, tx); err != nil {
			return fence.Mark{}, err
		}
	}
	key, own := rowOf(s.Key()), fence.Mark{Token: s.Token, Owner: s.Owner}
	seen, err := f.lockRow(ctx, tx, key, s)
	if err == nil && seen != own && fence.Check(seen, s) == nil {
		var marks map[row]fence.Mark
		marks, err = f.raise(ctx, tx, []fence.Stamp{s}, f.bound(ctx))
		seen = marks[key]
	}
	if err == nil && f.dialect == SQLite {
		err = f.verifyColumns(ctx, tx)
	}
	return seen, err
}

// lockRow locks the row of a key and returns its mark, the zero Mark if there
// is none.
func (f *Fence) lockRow(ctx context.Context, tx Queryer, key row, s fence.Stamp) (fence.Mark, error) {
	bound := f.bound(ctx)
	lock := f.dialect.lock(key, s, bound)
	switch f.dialect {
	case PostgreSQL:
		n, err := tx.Exec(ctx, lock.text, lock.args)
		if err != nil || n == 1 {
			return fence.Mark{Token: s.Token, Owner: s.Owner}, err
		}
		// The lock was for the stamp's own row only. A refusal takes none: a
		// zombie waits for nobody, and nobody for it.
		lock = f.dialect.lookup([]row{key}, false)
		fallthrough
	case SQLite:
		marks, err := scan(ctx, tx, lock)
		return marks[key], err
	}
	var (
		mark     fence.Mark
		idle     int64
		readOnly sql.NullString // 0 and 1, in later versions OFF and others
	)
	err := tx.Query(ctx, lock.text, lock.args, func(scan func(...any) error) error {
		var keyspace sql.NullString
		var partition, token sql.NullInt64
		var owner sql.NullString
		if err := scan(&keyspace, &partition, &token, &owner, &idle, &readOnly); err != nil {
			return err
		}
		if !keyspace.Valid {
			return nil
		}
		var err error
		mark, err = toMark(key, token, owner)
		return err
	})
	if err != nil {
		return mark, err
	}
	if readOnly.String != "0" && readOnly.String != "OFF" {
		return mark, fmt.Errorf("%w: the server's read_only is on", ErrReadOnly)
	}
	return mark, boundIdle(ctx, tx, idle, bound)
}

// boundIdle sets MariaDB's timeout of idle transactions, the only one that has
// no form for a single transaction: once for each connection, which keeps it.
// MySQL has none and says -1.
func boundIdle(ctx context.Context, tx Queryer, now int64, bound time.Duration) error {
	limit := seconds(bound)
	if now < 0 || now > 0 && now <= limit {
		return nil
	}
	_, err := tx.Exec(ctx, fmt.Sprintf("SET SESSION idle_transaction_timeout = %d", limit), nil)
	return err
}

// raise writes the stamps (one per key) where the rule allows it, and returns
// what the table holds for each of them afterwards. A stamp has been accepted
// exactly if that is the stamp itself: a row that the statement did not touch
// is looked up and never taken for success.
func (f *Fence) raise(ctx context.Context, q Queryer, stamps []fence.Stamp, wait time.Duration) (map[row]fence.Mark, error) {
	up := f.dialect.upsert(stamps, wait)
	marks := map[row]fence.Mark{}
	var err error
	if f.dialect == MySQL { // no RETURNING: the rows are looked up below
		_, err = q.Exec(ctx, up.text, up.args)
	} else {
		marks, err = scan(ctx, q, up)
	}
	if err != nil {
		return nil, fmt.Errorf("raise tokens: %w", err)
	}
	var rest []row
	for _, s := range stamps {
		if r := rowOf(s.Key()); marks[r] == (fence.Mark{}) {
			rest = append(rest, r)
		}
	}
	if len(rest) > 0 {
		more, err := scan(ctx, q, f.dialect.lookup(rest, f.dialect == MySQL))
		if err != nil {
			return nil, fmt.Errorf("look up tokens: %w", err)
		}
		for r, m := range more {
			marks[r] = m
		}
	}
	for _, s := range stamps {
		// A row that would allow the stamp and does not have it was neither
		// raised nor a reason for refusal: the table is not what it should be.
		m, ok := marks[rowOf(s.Key())]
		if accepted := (fence.Mark{Token: s.Token, Owner: s.Owner}); !ok || m != accepted && fence.Check(m, s) == nil {
			return nil, fmt.Errorf("%w: token of %s was not stored and not refused: the table holds %d of %q", ErrWrongTable, s, m.Token, m.Owner)
		}
	}
	return marks, nil
}

// scan runs a statement that returns rows of the table.
func scan(ctx context.Context, q Queryer, s statement) (map[row]fence.Mark, error) {
	marks := map[row]fence.Mark{}
	err := q.Query(ctx, s.text, s.args, func(scan func(...any) error) error {
		var r row
		var token sql.NullInt64
		var owner sql.NullString
		if err := scan(&r.Keyspace, &r.Partition, &token, &owner); err != nil {
			return &RowError{Row: "one of those asked for", Found: err.Error()}
		}
		m, err := toMark(r, token, owner)
		marks[r] = m
		return err
	})
	return marks, err
}

func toMark(r row, token sql.NullInt64, owner sql.NullString) (fence.Mark, error) {
	switch {
	case !token.Valid:
		return fence.Mark{}, &RowError{Row: r.String(), Found: "token is NULL"}
	case token.Int64 < 1 || token.Int64 > int64(fence.MaxToken):
		return fence.Mark{}, &RowError{Row: r.String(), Found: fmt.Sprintf("token is %d", token.Int64)}
	case !owner.Valid || owner.String == "":
		return fence.Mark{}, &RowError{Row: r.String(), Found: "owner is empty"}
	}
	return fence.Mark{Token: fence.Token(token.Int64), Owner: owner.String}, nil
}

// Seen returns what the table has accepted under a key, the zero Mark if
// nothing. It is for people and tests; a write must use Guard.
func (f *Fence) Seen(ctx context.Context, k fence.Key) (fence.Mark, error) {
	if err := f.dialect.known(); err != nil {
		return fence.Mark{}, err
	}
	marks, err := scan(ctx, f.db, f.dialect.lookup([]row{rowOf(k)}, false))
	if err != nil {
		return fence.Mark{}, fmt.Errorf("look up token of %s: %w", k, explain(err))
	}
	return marks[rowOf(k)], nil
}

// validate is Stamp.Validate and what a column must hold besides.
func validate(stamps ...fence.Stamp) error {
	for _, s := range stamps {
		if err := s.Validate(); err != nil {
			return err
		}
		for what, name := range map[string]string{"keyspace": s.Keyspace, "owner": s.Owner} {
			if len(name) > maxName || !utf8.ValidString(name) || strings.ContainsRune(name, 0) {
				return fmt.Errorf("%w: %s %.40q has %d bytes, want at most %d of UTF-8 without NUL", fence.ErrInvalid, what, name, len(name), maxName)
			}
		}
	}
	return nil
}

func (d Dialect) known() error {
	if d < SQLite || d > MySQL {
		return fmt.Errorf("unknown %s: want SQLite, PostgreSQL, MariaDB or MySQL", d)
	}
	return nil
}
