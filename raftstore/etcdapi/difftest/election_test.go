package difftest

import (
	"errors"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
)

// electionScenario: campaign, observe, proclaim, resign, and the next in line.
func electionScenario(t *testing.T, addrs []string) {
	c, ctx := client(t, addrs...), within(t, 60*time.Second)
	a, b := concurrency.NewElection(session(t, c), "office"), concurrency.NewElection(session(t, c), "office")
	if _, err := a.Leader(ctx); !errors.Is(err, concurrency.ErrElectionNoLeader) {
		t.Fatalf("leader of an election without one: %v", err)
	}
	seen := concurrency.NewElection(session(t, c), "office").Observe(ctx)
	must(t, a.Campaign(ctx, "a"))
	expect(t, seen, "a")
	won := make(chan error, 1)
	go func() { won <- b.Campaign(ctx, "b") }()
	must(t, a.Proclaim(ctx, "a again"))
	expect(t, seen, "a again")
	r, err := a.Leader(ctx)
	must(t, err)
	if string(r.Kvs[0].Value) != "a again" || r.Kvs[0].CreateRevision != a.Rev() {
		t.Errorf("leader is %v, elected at %d", r.Kvs[0], a.Rev())
	}
	select {
	case err := <-won:
		t.Fatalf("two are elected: %v", err)
	default:
	}
	must(t, a.Resign(ctx))
	must(t, <-won)
	expect(t, seen, "b")
	if err := a.Proclaim(ctx, "late"); !errors.Is(err, concurrency.ErrElectionNotLeader) {
		t.Errorf("proclaim after resigning: %v", err)
	}
	must(t, a.Resign(ctx)) // twice is no error
}

// expect reads what is observed until value comes: what was overwritten may be
// skipped.
func expect(t *testing.T, seen <-chan *clientv3.GetResponse, value string) {
	t.Helper()
	timeout := time.After(30 * time.Second)
	for {
		select {
		case r, ok := <-seen:
			if !ok {
				t.Fatalf("the observation ended before %q", value)
			}
			if string(r.Kvs[0].Value) == value {
				return
			}
		case <-timeout:
			t.Fatalf("%q was not observed in 30s", value)
		}
	}
}

// resumeScenario: an election goes on from its key, and the winner's
// session's end elects the next.
func resumeScenario(t *testing.T, addrs []string) {
	c, ctx := client(t, addrs...), within(t, 60*time.Second)
	s := session(t, c)
	first := concurrency.NewElection(s, "resumed")
	must(t, first.Campaign(ctx, "one"))
	again := concurrency.ResumeElection(s, "resumed", first.Key(), first.Rev())
	must(t, again.Proclaim(ctx, "two"))
	other := concurrency.NewElection(session(t, c), "resumed")
	won := make(chan error, 1)
	go func() { won <- other.Campaign(ctx, "three") }()
	must(t, poll(ctx, 2*time.Millisecond, func() bool {
		r, err := c.Get(ctx, "resumed/", clientv3.WithPrefix())
		return err == nil && r.Count == 2
	}))
	must(t, s.Close())
	must(t, <-won)
	if err := again.Proclaim(ctx, "four"); !errors.Is(err, concurrency.ErrElectionNotLeader) {
		t.Errorf("proclaim after the session's end: %v", err)
	}
}
