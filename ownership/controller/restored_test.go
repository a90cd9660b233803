package controller

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// After a restore, workers of the old cluster may believe in their leases for
// another TTL: nothing strict is granted before, everything fenced at once, and
// nobody asks the log in vain meanwhile.
func TestRestoredClusterWaitsForOldLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestStore(t)
		strict := s.keyspace("orders", 12, func(x *state.Settings) { x.TTL, x.InitialDelay = 10*time.Second, time.Second })
		fenced := s.keyspace("jobs", 12, func(x *state.Settings) { x.TTL, x.Takeover, x.InitialDelay = 5*time.Second, state.Fenced, time.Second })
		index, term := s.s.Applied()
		if err := s.s.Rebase(state.Rebase{ClusterID: "new", Index: index + 1, Term: term + 1, First: 1 << 30}); err != nil {
			t.Fatal(err)
		}
		s.index++
		c, _, stop := lead(t, s, nil, nil)
		defer stop()
		s.open("a", 0, "orders", "jobs")
		s.open("b", 0, "orders", "jobs")
		pass(2 * time.Second)
		if owned, _ := s.counts(fenced); owned != 12 {
			t.Errorf("%d of 12 fenced partitions are owned", owned)
		}
		for begun := time.Now(); time.Since(begun) < 7*time.Second; pass(100 * time.Millisecond) {
			if owned, _ := s.counts(strict); owned != 0 {
				t.Fatalf("%d strict partitions were granted after %v, the TTL is 10 s", owned, 2*time.Second+time.Since(begun))
			}
			r, err := why(c, strict, 3)
			if err != nil || r.Code != CodeRestored || r.Left <= 0 || r.Left > 10*time.Second || !strings.HasPrefix(r.String(), "restored: waits until") {
				t.Fatalf("why: %q, %v left (%v)", r, r.Left, err)
			}
		}
		if n := s.inVain.Load(); n > 0 {
			t.Errorf("%d grants were proposed in vain", n)
		}
		pass(3 * time.Second) // a tick late at most: this store has none before a grant
		if owned, _ := s.counts(strict); owned != 12 {
			t.Errorf("%d of 12 strict partitions are owned after the hold", owned)
		}
	})
}
