package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/leasehold-dev/leasehold/cmd/leasehold/internal/cluster"
	"github.com/leasehold-dev/leasehold/ownership/client"
	"github.com/leasehold-dev/leasehold/ownership/fence"
	"github.com/leasehold-dev/leasehold/ownership/fence/sqlfence"
	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"github.com/leasehold-dev/leasehold/ownership/worker"
	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// site is a cluster of real processes that will be backed up.
type site struct {
	t   *testing.T
	dir string
	*cluster.Cluster
	client *client.Client
}

func newSite(t *testing.T, servers int) *site {
	t.Helper()
	return newSiteIn(t, t.TempDir(), servers)
}

// newSiteIn keeps the data of s1, s2, … in directories of these names.
func newSiteIn(t *testing.T, dir string, servers int) *site {
	t.Helper()
	s := &site{t: t, dir: dir}
	var err error
	if s.Cluster, err = cluster.StartServers(processGroup(t), s.dir, specs(servers)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	s.ready(s.Servers()...)
	waitFor(t, "the feature level that all know", func() bool {
		return !slices.ContainsFunc(s.Servers(), func(x *cluster.Server) bool { return s.status(x).GetFeatureLevel() < uint32(state.MaxFeature) })
	})
	if s.client, err = client.Dial(t.Context(), client.Config{Servers: s.Addrs()}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.client.Close() })
	return s
}

func (s *site) ready(servers ...*cluster.Server) {
	s.t.Helper()
	// One that has lost its data gets its vote when it has kept up for 10 s.
	ctx, cancel := context.WithTimeout(s.t.Context(), 3*time.Minute)
	defer cancel()
	for _, x := range servers {
		if err := x.WaitReady(ctx); err != nil {
			s.t.Fatal(err)
		}
	}
}

func (s *site) kill(x *cluster.Server) {
	s.t.Helper()
	if err := s.Kill(x); err != nil {
		s.t.Fatal(err)
	}
}

// data is a server's data directory.
func (s *site) data(x *cluster.Server) string { return filepath.Join(s.dir, x.ID) }

// want runs a command against the cluster.
func (s *site) want(code int, args ...string) (stdout, stderr string) {
	s.t.Helper()
	return (&cli{env: map[string]string{"LEASEHOLD_SERVER": s.Addrs()}}).want(s.t, code, args...)
}

// keyspace makes one, which is acknowledged when it returns. If the answer of a
// try is lost, with a leader's connections or its office, it is there or it is made.
func (s *site) keyspace(name string, partitions uint32, ttl time.Duration, takeover leaseholdv1.Takeover) error {
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
	defer cancel()
	for lost := false; ; lost = true {
		_, err := s.client.Keyspaces().CreateKeyspace(ctx, &leaseholdv1.CreateKeyspaceRequest{
			Name: name, Partitions: partitions, TtlMs: ttl.Milliseconds(), Takeover: takeover,
		})
		if lost && leaseholdv1.ReasonOf(err) == leaseholdv1.ReasonExists {
			return nil
		}
		if !errors.Is(err, client.ErrUnknownOutcome) || ctx.Err() != nil {
			return err
		}
	}
}

func (s *site) status(x *cluster.Server) *leaseholdv1.Status {
	s.t.Helper()
	var st *leaseholdv1.Status
	waitFor(s.t, "the status of "+x.ID, func() (ok bool) {
		var err error
		st, err = x.Status(s.t.Context())
		return err == nil
	})
	return st
}

// watchman is told by every handler when it begins and when its context has
// ended, and has a guarded table.
type watchman struct {
	t     *testing.T
	guard *sqlfence.Fence

	mu   sync.Mutex
	live map[fence.Key]fence.Stamp
	seen []fence.Stamp // in order
	at   []time.Time   // of each of seen
}

func newWatchman(t *testing.T) *watchman {
	t.Helper()
	db, err := sql.Open("sqlite", sqlfence.SQLiteDSN(filepath.Join(t.TempDir(), "resource.db")))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	db.SetMaxOpenConns(1)
	m := &watchman{t: t, guard: sqlfence.New(db, sqlfence.SQLite), live: map[fence.Key]fence.Stamp{}}
	if err := m.guard.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	return m
}

// work runs a worker until the test ends.
func (m *watchman) work(servers, id string, keyspaces ...string) {
	m.t.Helper()
	w, err := worker.Join(m.t.Context(), worker.Config{Servers: servers, ID: id, Gossip: worker.GossipOff, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		m.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	for _, k := range keyspaces {
		group.Go(func() {
			if err := w.Run(ctx, k, m.handle, worker.Claim(m.guard)); err != nil && ctx.Err() == nil {
				m.t.Errorf("worker %s of %s ended: %v", id, k, err)
			}
		})
	}
	m.t.Cleanup(func() {
		cancel()
		group.Wait()
	})
}

func (m *watchman) handle(ctx context.Context, l *worker.Lease) error {
	stamp := l.Stamp()
	m.mu.Lock()
	if other, ok := m.live[stamp.Key()]; ok && !strings.HasPrefix(stamp.Keyspace, "fenced") {
		m.t.Errorf("%v began while %v was live", stamp, other)
	}
	m.live[stamp.Key()] = stamp
	m.seen, m.at = append(m.seen, stamp), append(m.at, time.Now())
	m.mu.Unlock()
	select {
	case <-ctx.Done():
	case <-l.Draining():
	}
	m.mu.Lock()
	if m.live[stamp.Key()] == stamp {
		delete(m.live, stamp.Key())
	}
	m.mu.Unlock()
	return nil
}

// owned counts the live handlers of a keyspace.
func (m *watchman) owned(keyspace string) (n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for k := range m.live {
		if k.Keyspace == keyspace {
			n++
		}
	}
	return n
}

// until waits for so many live handlers of a keyspace.
func (m *watchman) until(keyspace string, n int) {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(m.t.Context(), time.Minute)
	defer cancel()
	if err := poll(ctx, 10*time.Millisecond, func() (bool, error) { return m.owned(keyspace) == n, nil }); err != nil {
		m.t.Fatalf("%d of %d partitions of %s are owned: %v", m.owned(keyspace), n, keyspace, err)
	}
}

// since returns the grants from the i-th on, with their times.
func (m *watchman) since(i int) ([]fence.Stamp, []time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]fence.Stamp(nil), m.seen[i:]...), append([]time.Time(nil), m.at[i:]...)
}

func (m *watchman) grants() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.seen)
}

// zombie tries to claim with a stamp of before, as a handler that was paused
// would, and must be refused.
func (m *watchman) zombie(s fence.Stamp) {
	m.t.Helper()
	if err := m.guard.Claim(m.t.Context(), []fence.Stamp{s}); !errors.Is(err, fence.ErrStale) {
		m.t.Errorf("a zombie of the old cluster, %v, was let in: %v", s, err)
	}
}

func name(i int) string { return fmt.Sprintf("load-%d", i) }
