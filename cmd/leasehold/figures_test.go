package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/leasehold-dev/leasehold/cmd/leasehold/internal/cluster"
	"github.com/leasehold-dev/leasehold/cmd/leasehold/internal/demo"
	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
)

// The figures of README and DESIGN §2 about servers that are replaced,
// restarted and moved, on real processes while the demo's orders are written.

// asProgram makes the test binary the program, see TestMain.
var asProgram = []string{asProgramEnv + "=1"}

// staged is a cluster of three servers and three workers that own everything.
type staged struct {
	*demo.Stage
	t      *testing.T
	ctx    context.Context
	before []demo.Holding // by partition, when all was calm
	began  time.Duration  // of what the test does

	leaders leaderWatch
}

func stage(t *testing.T, ttl time.Duration) *staged {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), 8*time.Minute, errors.New("eight minutes are over"))
	t.Cleanup(cancel)
	const workers, partitions = 3, 12
	group, err := cluster.NewGroup() // of this test binary
	if err != nil {
		t.Fatal(err)
	}
	servers := cluster.Specs(3)
	for i := range servers {
		servers[i].Env = asProgram
	}
	st, err := demo.OpenStage(ctx, demo.StageConfig{
		Dir: t.TempDir(), Group: group, Servers: servers, Mode: demo.Strict, Partitions: partitions,
		TTL: ttl, Seed: 1, Pace: 100 * time.Millisecond, Guarded: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	})
	s := &staged{Stage: st, t: t, ctx: ctx}
	s.must(st.Begin(ctx))
	st.Fleet.Adjust = func(_ string, spec *cluster.Spec) { spec.Env = asProgram }
	for i := range workers {
		_, err := st.Fleet.Start(fmt.Sprintf("w%d", i+1))
		s.must(err)
	}
	s.must(st.Fleet.Owned(ctx, true, time.Second))
	st.Board.Look(func(v *demo.View) { s.before = v.Owners() })
	s.began = demo.Now()
	return s
}

func (s *staged) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// disturbed is what became of the leases since the test began.
type disturbed struct {
	grants, stops int
	expired       int // sessions
	first         string
}

// end ends the stream and the workers, and says what became of the leases
// until then. Every order must be in the ledger, once.
func (s *staged) end() (d disturbed) {
	s.t.Helper()
	over := demo.Now()
	events, err := s.Client.Events().ListEvents(s.ctx, &leaseholdv1.ListEventsRequest{})
	s.must(err)
	for _, e := range events.GetItems() {
		if e.GetKind() == "session_expire" {
			d.expired++
		}
	}
	last, err := s.EndOrders()
	s.must(err)
	s.must(s.Ledger.WaitFor(s.ctx, s.Source.Partitions, last))
	s.must(s.CatchUp(s.ctx))
	s.must(s.Fleet.TerminateAll(s.ctx))
	ev, err := s.Evidence()
	s.must(err)
	for _, records := range ev {
		for _, r := range records {
			if r.At < s.began || r.At > over {
				continue
			}
			switch r.Kind {
			case demo.KindMove:
				d.grants++
			case demo.KindEnd, demo.KindReturn:
				d.stops++
			default:
				continue
			}
			if d.first == "" {
				d.first = fmt.Sprintf("%s of orders/%d in %s: %s", r.Kind, r.Partition, r.Process, r.Cause)
			}
		}
	}
	audit, err := s.Ledger.Audit(s.ctx, &s.Source, last)
	s.must(err)
	if audit.Missing+audit.Duplicated+audit.OutOfSequence+audit.TokenRegressions+audit.Foreign > 0 || audit.Written == 0 {
		s.t.Errorf("the ledger is damaged: %+v", audit)
	}
	s.t.Logf("%d orders written", audit.Written)
	return d
}

// undisturbed fails unless nobody has noticed anything.
func (s *staged) undisturbed(d disturbed) {
	s.t.Helper()
	s.t.Logf("%d moves, %d expiries, %d handlers or contexts ended", d.grants, d.expired, d.stops)
	if d.grants+d.expired+d.stops > 0 {
		s.t.Errorf("%d moves, %d expiries, %d handlers or contexts ended, want none; first: %s", d.grants, d.expired, d.stops, d.first)
	}
}

// leaderWatch counts the leaders that were seen.
type leaderWatch struct {
	mu    sync.Mutex
	terms map[uint64]string
}

// watchLeaders asks the servers who leads, until the returned function is
// called, which says how often that changed.
func (s *staged) watchLeaders() (changes func() int) {
	ctx, stop := context.WithCancel(s.ctx)
	done := make(chan struct{})
	s.leaders.terms = map[uint64]string{}
	servers := slices.Clone(s.Cluster.Servers())
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			for _, srv := range servers {
				if st, err := srv.Status(ctx); err == nil && st.GetRaftState() == "leader" {
					s.leaders.mu.Lock()
					s.leaders.terms[st.GetTerm()] = st.GetServerId()
					s.leaders.mu.Unlock()
				}
			}
			select {
			case <-ctx.Done():
			case <-time.After(50 * time.Millisecond):
			}
		}
	}()
	return func() int {
		stop()
		<-done
		return len(s.leaders.terms) - 1
	}
}

// writes are keyspaces that somebody creates, one after the other, and those
// of them that were acknowledged.
type writes struct {
	acked   []string
	refused int
}

// write creates keyspaces until the returned function is called.
func (s *staged) write() (stop func() writes) {
	ctx, cancel := context.WithCancel(s.ctx)
	done := make(chan struct{})
	var w writes
	go func() {
		defer close(done)
		for i := 0; ctx.Err() == nil; i++ {
			name := fmt.Sprintf("write-%d", i)
			trying, enough := context.WithTimeout(ctx, 2*time.Second)
			_, err := s.Client.Keyspaces().CreateKeyspace(trying, &leaseholdv1.CreateKeyspaceRequest{Name: name, Partitions: 1, TtlMs: 10_000})
			enough()
			if err == nil {
				w.acked = append(w.acked, name)
			} else {
				w.refused++
			}
			select {
			case <-ctx.Done():
			case <-time.After(20 * time.Millisecond):
			}
		}
	}()
	return func() writes {
		cancel()
		<-done
		return w
	}
}

// kept fails unless everything that was acknowledged is there.
func (s *staged) kept(w writes) {
	s.t.Helper()
	list, err := s.Client.Keyspaces().ListKeyspaces(s.ctx, &leaseholdv1.ListKeyspacesRequest{})
	s.must(err)
	there := map[string]bool{}
	for _, k := range list.GetItems() {
		there[k.GetName()] = true
	}
	for _, name := range w.acked {
		if !there[name] {
			s.t.Errorf("%s was acknowledged and is gone", name)
		}
	}
	s.t.Logf("%d writes acknowledged, %d not", len(w.acked), w.refused)
	if len(w.acked) < 20 {
		s.t.Errorf("only %d writes were acknowledged: nothing was tested", len(w.acked))
	}
}

// A rolling restart by somebody who looks whether a server is ready before the
// next one.
func TestRollingRestartOfServersByReadiness(t *testing.T) {
	s := stage(t, 3*time.Second)
	stop, changes := s.write(), s.watchLeaders()
	for _, srv := range s.Cluster.Servers() {
		s.must(s.Cluster.Terminate(s.ctx, srv))
		s.must(s.Cluster.Restart(s.ctx, srv))
	}
	s.kept(stop())
	if n := changes(); n > 3 {
		t.Errorf("%d changes of leader by 3 restarts", n)
	} else {
		t.Logf("%d changes of leader", n)
	}
	s.undisturbed(s.end())
}

// O-53: one that only waits for a second. The second server goes while the
// first may not have caught up, so there may be no quorum for a moment; what
// was acknowledged is kept all the same.
func TestRollingRestartOfServersWithoutPauses(t *testing.T) {
	s := stage(t, 6*time.Second)
	stop, changes := s.write(), s.watchLeaders()
	for _, srv := range s.Cluster.Servers() {
		s.must(s.Cluster.Terminate(s.ctx, srv))
		s.must(s.Cluster.Start(srv))
		select { // the gap is what is tested
		case <-s.ctx.Done():
		case <-time.After(time.Second):
		}
	}
	s.must(s.Cluster.WaitReady(s.ctx))
	s.kept(stop())
	if n := changes(); n > 3 {
		t.Errorf("%d changes of leader by 3 restarts", n)
	} else {
		t.Logf("%d changes of leader", n)
	}
	s.undisturbed(s.end())
}
