package state

import (
	"fmt"
	"testing"
)

// Three workers were killed within a minute, each a moment after it had been
// given two partitions: nothing says that either of them is poison.
func TestThreeKillsCondemnNoInnocentPartition(t *testing.T) {
	s := New()
	k := &Keyspace{state: s, ID: 1, Partitions: 4, leaseTable: newLeaseTable(4), suspects: map[uint32]*suspect{}}
	for i := range QuarantineWorkers {
		s.suspect(k, 0, fmt.Sprintf("w%d", i), wholeBlame/2, true, "")
	}
	if v, ok := k.Suspect(0); !ok || v.Quarantined {
		t.Errorf("after three deaths shared with another: %+v, a suspect: %v", v, ok)
	}
	// But what kills each of them, the first among others, is one.
	s.suspect(k, 1, "w0", wholeBlame/4, true, "")
	s.suspect(k, 1, "w1", wholeBlame, true, "")
	s.suspect(k, 1, "w2", wholeBlame, true, "")
	if v, _ := k.Suspect(1); !v.Quarantined {
		t.Errorf("after three deaths, two of them alone: %+v", v)
	}
}
