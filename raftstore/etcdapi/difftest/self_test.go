package difftest

import (
	"testing"
)

func etcdSide(t *testing.T, name string, servers int) *Side {
	t.Helper()
	e, err := StartEtcd(t.TempDir(), servers)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	s, err := Dial(t.Context(), name, e.Addrs)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// TestNoDifferenceFromItself holds etcd against another etcd: what the
// comparison reports is never a matter of time.
func TestNoDifferenceFromItself(t *testing.T) {
	r := NewRunner(etcdSide(t, "etcd", 1), etcdSide(t, "etcd too", 1), *seedFlag)
	defer r.Close()
	if err := r.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := r.Run(t.Context(), 20_000); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d operations, %d watch events", r.Operations, r.Events)
}
