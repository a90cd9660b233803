package server

import (
	"testing"
	"time"

	"github.com/leasehold-dev/leasehold/raftstore/mvcc"
)

// All kept versions count, those that were replaced too; deletions have no value.
func TestValueSizes(t *testing.T) {
	s := mvcc.New()
	put := func(key string, size int) {
		t.Helper()
		op := mvcc.Op{Put: &mvcc.PutOp{Key: []byte(key), Value: make([]byte, size)}}
		if _, err := s.Txn(&mvcc.Txn{Success: []mvcc.Op{op}}, nil, 0); err != nil {
			t.Fatal(err)
		}
	}
	if largest, mean := valueSizes(s.Freeze()); largest != 0 || mean != 0 {
		t.Errorf("empty: %d, %d", largest, mean)
	}
	put("a", 100)
	put("b", 900)
	if err := s.Compact(s.Revision()); err != nil {
		t.Fatal(err)
	}
	put("b", 200)
	s.DeleteKeys([]string{"b"})
	if largest, mean := valueSizes(s.Freeze()); largest != 900 || mean != 400 {
		t.Errorf("largest %d, mean %d", largest, mean)
	}
}

// Who asks all the time has them read only so often; what has not changed, not at all.
func TestValueSizesAreKeptForAWhile(t *testing.T) {
	var l valueLook
	reads := 0
	at := time.Unix(1_800_000_000, 0)
	for _, c := range []struct {
		revision int64
		after    time.Duration
		want     int
	}{{5, 0, 1}, {6, time.Second, 1}, {6, valuesEvery, 2}, {6, 3 * valuesEvery, 2}, {7, 3 * valuesEvery, 3}} {
		l.look(c.revision, at.Add(c.after), func() (int64, int64) { reads++; return 0, 0 })
		if reads != c.want {
			t.Errorf("revision %d after %v: %d reads, want %d", c.revision, c.after, reads, c.want)
		}
	}
}
