package server

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"sync"
	"testing"
	"time"

	_ "modernc.org/sqlite"

	"github.com/leasehold-dev/leasehold/ownership/fence"
	"github.com/leasehold-dev/leasehold/ownership/fence/sqlfence"
	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"github.com/leasehold-dev/leasehold/ownership/worker"
)

// ledger is a guarded SQL resource: each accepted write is a row.
type ledger struct {
	t     *testing.T
	db    *sql.DB
	guard *sqlfence.Fence
}

func newLedger(t *testing.T) *ledger {
	t.Helper()
	db, err := sql.Open("sqlite", sqlfence.SQLiteDSN(filepath.Join(t.TempDir(), "ledger.db")))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	l := &ledger{t: t, db: db, guard: sqlfence.New(db, sqlfence.SQLite)}
	if err := l.guard.Migrate(context.Background()); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec(`CREATE TABLE writes (id INTEGER PRIMARY KEY, partition_id INTEGER, token INTEGER, owner TEXT)`); err != nil {
		t.Fatal(err)
	}
	return l
}

func (l *ledger) write(s fence.Stamp) error {
	ctx := context.Background() // a write is not called back
	tx, err := l.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := l.guard.Guard(ctx, tx, s); err != nil {
		return err
	}
	if _, err := tx.Exec(`INSERT INTO writes (partition_id, token, owner) VALUES (?, ?, ?)`, s.Partition, int64(s.Token), s.Owner); err != nil {
		return err
	}
	return tx.Commit()
}

// last is who made the newest accepted write, under which token.
func (l *ledger) last() (owner string, token uint64) {
	err := l.db.QueryRow(`SELECT owner, token FROM writes ORDER BY id DESC LIMIT 1`).Scan(&owner, &token)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		l.t.Errorf("read ledger: %v", err)
	}
	return owner, token
}

// check finds accepted writes below an accepted token.
func (l *ledger) check() (writes int) {
	l.t.Helper()
	rows, err := l.db.Query(`SELECT partition_id, token FROM writes ORDER BY id`)
	if err != nil {
		l.t.Fatal(err)
	}
	defer rows.Close()
	highest := map[uint32]uint64{}
	for rows.Next() {
		var p uint32
		var token uint64
		if err := rows.Scan(&p, &token); err != nil {
			l.t.Fatal(err)
		}
		if token < highest[p] {
			l.t.Errorf("partition %d: a write under token %d was accepted after %d", p, token, highest[p])
		}
		highest[p] = max(highest[p], token)
		writes++
	}
	if err := rows.Err(); err != nil {
		l.t.Fatal(err)
	}
	return writes
}

// freezer stops one worker between its check and its write: the line to the
// servers passes nothing, and the handler stands still.
type freezer struct {
	line *line

	mu    sync.Mutex
	armed chan struct{} // nil: not armed
	stood chan uint64   // gets the token of the handler that stands
	wrote chan error    // what its write then met with
}

func (f *freezer) arm() (release func(), stood <-chan uint64, wrote <-chan error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.armed, f.stood, f.wrote = make(chan struct{}), make(chan uint64, 1), make(chan error, 1)
	armed := f.armed
	return sync.OnceFunc(func() { close(armed) }), f.stood, f.wrote
}

// stand blocks while armed. It returns where to tell how the write went.
func (f *freezer) stand(token uint64) chan<- error {
	f.mu.Lock()
	armed, stood, wrote := f.armed, f.stood, f.wrote
	f.armed = nil
	f.mu.Unlock()
	if armed == nil {
		return nil
	}
	stood <- token
	<-armed
	return wrote
}

// O-13, O-14: the owner stops for longer than its TTL right before a write;
// another takes over and writes; the first goes on as if nothing had been. Its
// write bounces with an error of its own, it stops, and comes back with
// another session and a higher token.
func TestWorkerFrozenPastItsTTLWritesAndBounces(t *testing.T) {
	t.Parallel()
	for _, mode := range []leaseholdv1.Takeover{leaseholdv1.Takeover_TAKEOVER_STRICT, leaseholdv1.Takeover_TAKEOVER_FENCED} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			c := quickCluster(t, 1)
			cl := c.client()
			createKeyspace(t, cl, "counters", 1, 3*time.Second, mode)
			book := newLedger(t)
			handler := func(f *freezer) worker.Handler {
				return func(ctx context.Context, l *worker.Lease) error {
					tick := time.NewTicker(5 * time.Millisecond)
					defer tick.Stop()
					for {
						select {
						case <-l.Draining():
							return nil
						case <-ctx.Done():
							return context.Cause(ctx)
						case <-tick.C:
						}
						if l.Check() != nil {
							continue
						}
						told := f.stand(uint64(l.Token()))
						err := book.write(l.Stamp())
						if told != nil {
							told <- err
						}
						if err != nil && !errors.Is(err, fence.ErrStale) {
							t.Errorf("write: %v", err)
						}
					}
				}
			}
			workers := map[string]*freezer{"a": {line: newLine()}, "b": {line: newLine()}}
			for id, f := range workers {
				startHand(t, worker.Config{Servers: c.servers(), ID: id, Gossip: worker.GossipOff, Dialer: f.line.dial}, "counters", handler(f), worker.Claim(book.guard))
			}
			for round := range 2 {
				var zombie string
				var old uint64
				var release func()
				var wrote <-chan error
				eventually(t, 15*time.Second, "somebody writes, both workers are there, and the one stands still", func() bool {
					zombie, _ = book.last()
					ws := c.workersByID(cl)
					if zombie == "" || !ws["a"].GetAttached() || !ws["b"].GetAttached() {
						return false
					}
					var stood <-chan uint64
					release, stood, wrote = workers[zombie].arm()
					t.Cleanup(release)
					select {
					case old = <-stood:
						return true
					case <-time.After(5 * time.Second): // a busy machine has made another the owner
						release()
						return false
					}
				})
				f, session := workers[zombie], c.workersByID(cl)[zombie].GetSessionId()
				f.line.freeze()
				var next string
				eventually(t, 15*time.Second, "the other worker writes", func() bool {
					var token uint64
					next, token = book.last()
					return next != zombie && token > old
				})
				release()
				var stale *fence.StaleError
				if err := <-wrote; !errors.Is(err, fence.ErrStale) || !errors.As(err, &stale) {
					t.Fatalf("round %d: the zombie's write met with %v", round, err)
				}
				if uint64(stale.Token) != old || stale.CurrentOwner != next || uint64(stale.Current) <= old {
					t.Errorf("round %d: the refusal says %v", round, stale)
				}
				f.line.thaw()
				eventually(t, 15*time.Second, "the zombie is back with another session", func() bool {
					w := c.workersByID(cl)[zombie]
					return w.GetAttached() && w.GetSessionId() != session
				})
			}
			if n := book.check(); n < 4 {
				t.Errorf("only %d writes", n)
			}
		})
	}
}

// O-23: the handoff times out, the handler goes on and writes with its old
// token. It was told that it lost the partition, and the write bounces.
func TestDrainSlowerThanTheHandoffTimeoutIsFenced(t *testing.T) {
	t.Parallel()
	c := quickCluster(t, 1)
	cl := c.client()
	timeout := int64(500)
	if _, err := cl.Keyspaces().CreateKeyspace(t.Context(), &leaseholdv1.CreateKeyspaceRequest{
		Name: "orders", Partitions: 1, TtlMs: 3000, Takeover: leaseholdv1.Takeover_TAKEOVER_FENCED, HandoffTimeoutMs: &timeout,
	}); err != nil {
		t.Fatal(err)
	}
	book := newLedger(t)
	late, cause := make(chan struct{}), make(chan error, 1)
	wrote := make(chan error, 1)
	startHand(t, worker.Config{Servers: c.servers(), ID: "slow", Gossip: worker.GossipOff}, "orders", func(ctx context.Context, l *worker.Lease) error {
		if err := book.write(l.Stamp()); err != nil {
			t.Errorf("first write: %v", err)
		}
		<-l.Draining()
		<-ctx.Done()
		cause <- context.Cause(ctx)
		<-late
		wrote <- book.write(l.Stamp())
		return nil
	}, worker.Claim(book.guard))
	eventually(t, 10*time.Second, "slow writes", func() bool { who, _ := book.last(); return who == "slow" })
	startHand(t, worker.Config{Servers: c.servers(), ID: "next", Gossip: worker.GossipOff}, "orders", func(ctx context.Context, l *worker.Lease) error {
		if err := book.write(l.Stamp()); err != nil {
			t.Errorf("the new owner's write: %v", err)
		}
		return untilTold(ctx, l)
	}, worker.Claim(book.guard))
	eventually(t, 10*time.Second, "next is there", func() bool { return c.workersByID(cl)["next"].GetAttached() })
	begun := time.Now()
	if _, err := cl.Workers().DrainWorker(t.Context(), &leaseholdv1.DrainWorkerRequest{Id: "slow"}); err != nil {
		t.Fatal(err)
	}
	eventually(t, 10*time.Second, "next writes", func() bool { who, _ := book.last(); return who == "next" })
	if took := time.Since(begun); took < 450*time.Millisecond || took > 6500*time.Millisecond {
		t.Errorf("the new owner wrote %v after the drain, want the handoff timeout of 500ms and about a TTL at most", took)
	}
	if err := <-cause; !errors.Is(err, worker.ErrDrainTimeout) && !errors.Is(err, worker.ErrRevoked) {
		t.Errorf("the slow handler was told %v", err)
	}
	close(late)
	if err := <-wrote; !errors.Is(err, fence.ErrStale) {
		t.Errorf("the late write met with %v", err)
	}
	book.check()
}

// The cluster was wiped and formed again under a clock that runs behind: the
// database has seen higher tokens than it grants. The refused claim tells it
// so, and the next grant is above.
func TestTokensOfAWipedClusterAreOvertaken(t *testing.T) {
	t.Parallel()
	c := quickCluster(t, 1)
	cl := c.client()
	createKeyspace(t, cl, "counters", 1, 3*time.Second, leaseholdv1.Takeover_TAKEOVER_STRICT)
	book := newLedger(t)
	tokens := make(chan fence.Token, 8)
	handler := func(ctx context.Context, l *worker.Lease) error {
		if err := book.write(l.Stamp()); err != nil {
			return err
		}
		tokens <- l.Token()
		select {
		case <-l.Draining():
		case <-ctx.Done():
		}
		return nil
	}
	// What the cluster grants now, plus an hour of its clock's tokens.
	before := startHand(t, worker.Config{Servers: c.servers(), ID: "before", Gossip: worker.GossipOff}, "counters", handler, worker.Claim(book.guard))
	seen := <-tokens + 3600*100<<13
	before.cancel()
	before.wait()
	if err := book.guard.Claim(t.Context(), []fence.Stamp{{Keyspace: "counters", Token: seen, Owner: "of the old cluster"}}); err != nil {
		t.Fatal(err)
	}
	startHand(t, worker.Config{Servers: c.servers(), ID: "after", Gossip: worker.GossipOff}, "counters", handler, worker.Claim(book.guard))
	select {
	case token := <-tokens:
		if token <= seen {
			t.Errorf("a handler runs under token %d, the database has seen %d", token, seen)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("no handler ever ran: the cluster does not get above what the database has seen")
	}
	if n := book.check(); n != 2 {
		t.Errorf("%d writes, want 2", n)
	}
}
