package pgxfence_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"pgregory.net/rapid"

	"github.com/leasehold-dev/leasehold/ownership/fence"
	"github.com/leasehold-dev/leasehold/ownership/fence/fencetest"
	"github.com/leasehold-dev/leasehold/ownership/fence/pgxfence"
	"github.com/leasehold-dev/leasehold/ownership/fence/sqlfence"
	"github.com/leasehold-dev/leasehold/ownership/internal/dbtest"
)

var (
	postgres = dbtest.SharedPostgreSQL("synchronous_commit=off")
	made     atomic.Int64
)

func TestMain(m *testing.M) {
	code := m.Run()
	postgres.Stop()
	os.Exit(code)
}

func newPool(t testing.TB, params string) *pgxpool.Pool {
	t.Helper()
	admin, err := pgxpool.New(t.Context(), postgres.Get(t).PostgreSQLDSN("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	schema := fmt.Sprint("t", made.Add(1))
	if _, err := admin.Exec(t.Context(), "CREATE SCHEMA "+schema); err != nil {
		t.Fatal(err)
	}
	pool, err := pgxpool.New(t.Context(), postgres.Get(t).PostgreSQLDSN("postgres")+"&search_path="+schema+params)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

func newFence(t testing.TB, params string, opts ...sqlfence.Option) (*pgxfence.Fence, *pgxpool.Pool) {
	t.Helper()
	pool := newPool(t, params)
	f := pgxfence.New(pool, opts...)
	if err := f.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := pool.Exec(t.Context(), `CREATE TABLE writes (id BIGSERIAL PRIMARY KEY, partition_id BIGINT, token BIGINT, owner TEXT)`); err != nil {
		t.Fatal(err)
	}
	return f, pool
}

func at(partition uint32, token fence.Token, owner string) fence.Stamp {
	return fence.Stamp{Keyspace: "orders", Partition: partition, Token: token, Owner: owner}
}

func insert(ctx context.Context, tx pgx.Tx, s fence.Stamp) error {
	_, err := tx.Exec(ctx, `INSERT INTO writes (partition_id, token, owner) VALUES ($1, $2, $3)`, int64(s.Partition), int64(s.Token), s.Owner)
	return err
}

func write(ctx context.Context, f *pgxfence.Fence, s fence.Stamp) error {
	return f.Do(ctx, s, func(ctx context.Context, tx pgx.Tx) error { return insert(ctx, tx, s) })
}

// The verdicts are those of the rule, in every mode of the driver.
func TestSameVerdictsAsTheRule(t *testing.T) {
	for _, params := range []string{"", "&default_query_exec_mode=exec", "&default_query_exec_mode=simple_protocol"} {
		f, _ := newFence(t, params)
		round := 0
		rapid.Check(t, func(rt *rapid.T) {
			round++
			model := fence.NewMemory(nil)
			gen := rapid.Custom(func(t *rapid.T) fence.Stamp {
				s := at(rapid.Uint32Range(0, 2).Draw(t, "partition"), fence.Token(rapid.Uint64Range(8, 12).Draw(t, "token")), rapid.SampledFrom([]string{"a", `b "'\ü😀`}).Draw(t, "owner"))
				s.Keyspace = fmt.Sprint(`k'"\ `, round)
				if rapid.Bool().Draw(t, "named") {
					s.Resource = s.Keyspace
				}
				return s
			})
			for range rapid.IntRange(1, 4).Draw(rt, "steps") {
				var got, want error
				if rapid.Bool().Draw(rt, "claim") {
					batch := rapid.SliceOfN(gen, 1, 6).Draw(rt, "stamps")
					got, want = f.Claim(t.Context(), batch), model.Claim(t.Context(), batch)
				} else {
					s := gen.Draw(rt, "stamp")
					got, want = write(t.Context(), f, s), model.Do(s, func() error { return nil })
				}
				if fmt.Sprint(got) != fmt.Sprint(want) {
					rt.Fatalf("database: %v\nrule:     %v", got, want)
				}
			}
		})
	}
}

// The error types of sqlfence come through.
func TestErrors(t *testing.T) {
	ctx := t.Context()
	if err := write(ctx, pgxfence.New(newPool(t, "")), at(1, 1, "a")); !errors.Is(err, sqlfence.ErrNoTable) {
		t.Errorf("no table: %v", err)
	}
	f, pool := newFence(t, "", sqlfence.WithTTL(4*time.Second))
	if err := f.Guard(ctx, nil, at(1, 1, "a")); !errors.Is(err, sqlfence.ErrNoTransaction) {
		t.Errorf("nil transaction: %v", err)
	}
	tx, err := pool.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	if err := f.Guard(ctx, tx, at(1, 1, "a")); !errors.Is(err, sqlfence.ErrNoTransaction) {
		t.Errorf("finished transaction: %v", err)
	}
	old := at(1, 5, "old")
	if tx, err = pool.Begin(ctx); err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(ctx)
	if err := f.Guard(ctx, tx, old); err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(ctx, 2500*time.Millisecond)
	defer cancel()
	var blocked *sqlfence.BlockedError
	if err := f.Claim(short, []fence.Stamp{at(1, 6, "new")}); !errors.As(err, &blocked) {
		t.Errorf("blocked claim: %v", err)
	}
	// Its session is ended after four seconds of idling; the claim waits for that.
	if err := f.Claim(ctx, []fence.Stamp{at(1, 6, "new")}); err != nil {
		t.Errorf("claim over a writer that idles: %v", err)
	}
	if err := tx.Commit(ctx); err == nil {
		t.Error("the idle writer could commit")
	}
	err = f.Do(ctx, at(1, 6, "new"), func(ctx context.Context, tx pgx.Tx) error {
		_, err := pool.Exec(ctx, `SELECT pg_terminate_backend($1)`, int64(tx.Conn().PgConn().PID()))
		return err
	})
	if !errors.Is(err, sqlfence.ErrOutcomeUnknown) {
		t.Errorf("connection lost at the commit: %v", err)
	}
	if m, err := f.Seen(ctx, fence.Key{Keyspace: "orders", Partition: 1}); err != nil || m.Token != 6 {
		t.Errorf("seen %v, %v", m, err)
	}
}

// resource is one trial of fencetest.
type resource struct {
	f        *pgxfence.Fence
	pool     *pgxpool.Pool
	keyspace string
	guarded  bool
}

func (r resource) own(s fence.Stamp) fence.Stamp {
	s.Keyspace = r.keyspace
	return s
}

func (r resource) Claim(ctx context.Context, stamps []fence.Stamp) error {
	if !r.guarded {
		return nil
	}
	own := make([]fence.Stamp, len(stamps))
	for i, s := range stamps {
		own[i] = r.own(s)
	}
	return r.f.Claim(ctx, own)
}

func (r resource) Begin(ctx context.Context, s fence.Stamp) (fencetest.Write, error) {
	tx, err := r.pool.Begin(ctx)
	if err != nil {
		return nil, err
	}
	if r.guarded {
		err = r.f.Guard(ctx, tx, r.own(s))
	}
	var id int64
	if err == nil {
		err = tx.QueryRow(ctx, `INSERT INTO trials (trial, partition_id, token, owner) VALUES ($1, $2, $3, $4) RETURNING id`, r.keyspace, int64(s.Partition), int64(s.Token), s.Owner).Scan(&id)
	}
	if err != nil {
		tx.Rollback(ctx)
		return nil, err
	}
	return pending{tx, r.keyspace, id}, nil
}

func (r resource) Accepted(ctx context.Context) ([]fence.Stamp, error) {
	rows, err := r.pool.Query(ctx, `SELECT partition_id, token, owner FROM trials WHERE trial = $1 ORDER BY at`, r.keyspace)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var all []fence.Stamp
	for rows.Next() {
		s := fence.Stamp{Keyspace: "trial"}
		if err := rows.Scan(&s.Partition, &s.Token, &s.Owner); err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, rows.Err()
}

type pending struct {
	tx    pgx.Tx
	trial string
	id    int64
}

// Commit numbers the write under a lock that it keeps to its end, so that the
// numbers are in the order of the commits.
func (p pending) Commit(ctx context.Context) error {
	_, err := p.tx.Exec(ctx, `WITH c AS (UPDATE clock SET n = n + 1 WHERE trial = $1 RETURNING n) UPDATE trials SET at = c.n FROM c WHERE id = $2`, p.trial, p.id)
	if err != nil {
		p.tx.Rollback(ctx)
		return err
	}
	return p.tx.Commit(ctx)
}

// Crash drops the connection without a word.
func (p pending) Crash() {
	p.tx.Conn().PgConn().Conn().Close()
	p.tx.Rollback(context.Background())
}

// Random interleavings of old and new owners, with pauses, retries and
// crashes (150; -fencetest.trials=1000 for more).
func TestTrials(t *testing.T) {
	f, pool := newFence(t, "&pool_max_conns=20", sqlfence.WithTTL(5*time.Second))
	if _, err := pool.Exec(t.Context(), `CREATE TABLE trials (id BIGSERIAL PRIMARY KEY, trial TEXT, partition_id BIGINT, token BIGINT, owner TEXT, at BIGINT);
		CREATE INDEX ON trials (trial); CREATE TABLE clock (trial TEXT PRIMARY KEY, n BIGINT)`); err != nil {
		t.Fatal(err)
	}
	run := func(guarded bool, trials int) fencetest.Report {
		return fencetest.Run(t, fencetest.Options{Trials: trials, Parallel: 4}, func(trial int) (fencetest.Resource, error) {
			r := resource{f, pool, fmt.Sprint("trial ", guarded, trial), guarded}
			_, err := pool.Exec(t.Context(), `INSERT INTO clock VALUES ($1, 0)`, r.keyspace)
			return r, err
		})
	}
	if r := run(true, 150); !r.OK() || r.Accepted == 0 || r.Refused == 0 || r.Crashed == 0 {
		t.Errorf("%s\n%s", r, r.First)
	}
	if r := run(false, 25); r.Stale == 0 {
		t.Errorf("without the guard nothing stale was written, so the trials prove nothing: %s", r)
	}
}
