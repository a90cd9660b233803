package difftest

import (
	"testing"
	"time"
)

// TestNoDifference is the differential test: one server of each.
func TestNoDifference(t *testing.T) {
	differential(t, 1, *opsFlag*3/4, *seedFlag)
}

// TestNoDifferenceOfThree has Leasehold answer by three servers, whoever of
// them leads.
func TestNoDifferenceOfThree(t *testing.T) {
	differential(t, 3, *opsFlag/4, *seedFlag+1)
}

func differential(t *testing.T, servers, operations int, seed uint64) {
	r := NewRunner(etcdSide(t, "etcd", 1), leaseholdSide(t, servers), seed)
	defer r.Close()
	if err := r.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if err := r.Run(t.Context(), operations); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d operations and %d watch events without a difference in %.1fs (seed %d)", r.Operations, r.Events, time.Since(began).Seconds(), seed)
	if want := operations / 40; r.Events < want {
		t.Errorf("%d watch events were compared, want at least %d", r.Events, want)
	}
}
