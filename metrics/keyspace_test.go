package metrics

import (
	"fmt"
	"testing"
	"time"
)

func TestUnownedSecondsGrowWithTheClock(t *testing.T) {
	server, _, s, _ := registries(t)
	s.ObserveKeyspaces(0, []Keyspace{{Name: "orders", Owned: 5, Unowned: 3}})
	s.ObserveKeyspaces(1500*time.Millisecond, []Keyspace{{Name: "orders", Owned: 4, Unowned: 3, Quarantined: 1}})
	if got := value(t, server, "leasehold_partition_unowned_seconds_total", "keyspace=orders"); got != 6 {
		t.Errorf("unowned for %v partition-seconds, want 4 × 1.5", got)
	}
	s.ObserveKeyspaces(-time.Second, []Keyspace{{Name: "orders", Unowned: 8}})
	if got := value(t, server, "leasehold_partition_unowned_seconds_total", "keyspace=orders"); got != 6 {
		t.Errorf("a clock that went back changed it to %v", got)
	}
	if got := value(t, server, "leasehold_partitions", "keyspace=orders", "state=unowned"); got != 8 {
		t.Errorf("unowned is %v, want 8", got)
	}
	if got := value(t, server, "leasehold_partitions_configured", "keyspace=orders"); got != 8 {
		t.Errorf("configured is %v, want 8", got)
	}
}

func TestTTLIsShownByKeyspace(t *testing.T) {
	server, _, s, _ := registries(t)
	var all []Keyspace
	for i := range MaxKeyspaces + 3 {
		all = append(all, Keyspace{Name: fmt.Sprintf("k%02d", i), TTL: time.Duration(10+i) * time.Second})
	}
	s.ObserveKeyspaces(0, all)
	for label, want := range map[string]float64{"k00": 10, "k31": 41, "other": 44} {
		if got := value(t, server, "leasehold_lease_ttl_seconds", "keyspace="+label); got != want {
			t.Errorf("TTL of %s is %v s, want %v", label, got, want)
		}
	}
}

func TestKeyspacesBeyondTheLimitShareOne(t *testing.T) {
	server, _, s, _ := registries(t)
	var all []Keyspace
	for i := range MaxKeyspaces + 3 {
		all = append(all, Keyspace{Name: fmt.Sprintf("k%02d", i), Owned: 10, Draining: 1})
	}
	s.ObserveKeyspaces(0, all)
	if got := value(t, server, "leasehold_partitions", "keyspace=other", "state=owned"); got != 30 {
		t.Errorf("other owns %v, want the sum of three", got)
	}
	// The first keyspace goes, and its place is given to one that shared.
	s.ObserveKeyspaces(0, all[1:])
	if got := value(t, server, "leasehold_partitions", "keyspace=other", "state=owned"); got != 20 {
		t.Errorf("other owns %v, want the sum of two", got)
	}
	if got := value(t, server, "leasehold_partitions", "keyspace=k32", "state=owned"); got != 10 {
		t.Errorf("k32 owns %v", got)
	}
	for _, f := range gather(t, server) {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetValue() == "k00" {
					t.Fatalf("%s still has the keyspace that is gone", f.GetName())
				}
			}
		}
	}
}

// A user may call a keyspace "other".
func TestKeyspaceNamedOther(t *testing.T) {
	server, _, s, _ := registries(t)
	for range 2 {
		s.ObserveKeyspaces(0, []Keyspace{{Name: "other", Owned: 7}})
		s.Granted("other", 7)
	}
	if got := value(t, server, "leasehold_partitions", "keyspace=other", "state=owned"); got != 7 {
		t.Errorf("owned is %v, want 7", got)
	}
}
