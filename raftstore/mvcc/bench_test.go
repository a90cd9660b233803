package mvcc

import (
	"fmt"
	"testing"
)

func put(t testing.TB, s *Store, key, value string) {
	t.Helper()
	if _, err := s.Txn(putTxn(key, value), nil, 0); err != nil {
		t.Fatal(err)
	}
}

func putTxn(key, value string) *Txn {
	return &Txn{Success: []Op{{Put: &PutOp{Key: []byte(key), Value: []byte(value)}}}}
}

// filled returns a store of n keys k000000… and one version of each.
func filled(t testing.TB, n int) *Store {
	s := New()
	for i := range n {
		put(t, s, fmt.Sprintf("k%06d", i), "some value of no great length")
	}
	return s
}

func BenchmarkPut(b *testing.B) {
	s := filled(b, 100_000)
	txns := make([]*Txn, 1000)
	for i := range txns {
		txns[i] = putTxn(fmt.Sprintf("k%06d", i*97), "another value")
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		s.Txn(txns[i%len(txns)], nil, 0)
	}
}

// BenchmarkPutAfterFreeze is the price of a snapshot under way: a copy has to
// be made of what the frozen copy still looks at.
func BenchmarkPutAfterFreeze(b *testing.B) {
	s := filled(b, 100_000)
	txns := make([]*Txn, 1000)
	for i := range txns {
		txns[i] = putTxn(fmt.Sprintf("k%06d", i*97), "another value")
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if i%1000 == 0 {
			s.Freeze()
		}
		s.Txn(txns[i%len(txns)], nil, 0)
	}
}

func BenchmarkCAS(b *testing.B) {
	s := filled(b, 100_000)
	key := []byte("k050000")
	b.ReportAllocs()
	for b.Loop() {
		u, _ := s.Txn(&Txn{
			Compare: []Compare{{Key: key, Target: CompareMod, Number: s.Get(key).ModRevision}},
			Success: []Op{{Put: &PutOp{Key: key, Value: []byte("v")}}},
			Failure: []Op{{Range: &RangeOp{Key: key}}},
		}, nil, 0)
		if !u.Result.Succeeded {
			b.Fatal("refused")
		}
	}
}

func benchmarkRange(b *testing.B, op *RangeOp, count int64) {
	s := filled(b, 100_000)
	b.ReportAllocs()
	for b.Loop() {
		if r, err := s.Range(op); err != nil || r.Count != count {
			b.Fatal(r.Count, err)
		}
	}
}

func BenchmarkRangeOne(b *testing.B) { benchmarkRange(b, &RangeOp{Key: []byte("k050000")}, 1) }

func BenchmarkRangeThousand(b *testing.B) {
	benchmarkRange(b, &RangeOp{Key: []byte("k050"), End: []byte("k051")}, 1000)
}

func BenchmarkRangeThousandOldest(b *testing.B) {
	benchmarkRange(b, &RangeOp{Key: []byte("k050"), End: []byte("k051"), Target: SortByCreate, Order: SortAscend, Limit: 1}, 1000)
}

func BenchmarkCountAll(b *testing.B) {
	benchmarkRange(b, &RangeOp{Key: []byte{0}, End: []byte{0}, CountOnly: true}, 100_000)
}

func BenchmarkLimitAll(b *testing.B) {
	benchmarkRange(b, &RangeOp{Key: []byte{0}, End: []byte{0}, Limit: 10}, 100_000)
}

func BenchmarkFreeze(b *testing.B) {
	s := filled(b, 100_000)
	b.ReportAllocs()
	for b.Loop() {
		s.Freeze()
	}
}

// BenchmarkCompact forgets 100,000 versions of as many keys.
func BenchmarkCompact(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		s := filled(b, 100_000)
		for i := range 100_000 {
			put(b, s, fmt.Sprintf("k%06d", i), "v")
		}
		b.StartTimer()
		if err := s.Compact(s.Revision()); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkCompactFew forgets 100 versions among 100,000 keys.
func BenchmarkCompactFew(b *testing.B) {
	s := filled(b, 100_000)
	s.Compact(s.Revision())
	txn := putTxn("k050000", "v")
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		for range 100 {
			s.Txn(txn, nil, 0)
		}
		b.StartTimer()
		if err := s.Compact(s.Revision()); err != nil {
			b.Fatal(err)
		}
	}
}

// million has 1,000,000 revisions; every 1000th is one of the key "rare", the
// others are of 1,000 keys.
func million(b *testing.B) *Store {
	s := New()
	for i := range 1000 {
		txn := putTxn(fmt.Sprintf("k%06d", i), "v")
		for range 999 {
			s.Txn(txn, nil, 0)
		}
		put(b, s, "rare", "v")
	}
	return s
}

func benchmarkEvents(b *testing.B, from int64, key, end string, count int) {
	s := million(b)
	var buf []Event
	b.ReportAllocs()
	for b.Loop() {
		events, _, err := s.Events(from, s.Revision(), []byte(key), []byte(end), 0, buf[:0])
		if err != nil || len(events) != count {
			b.Fatal(len(events), err)
		}
		buf = events
	}
}

// BenchmarkEventsOfOneKeyRecent is what a watch asks that begins a little in the past.
func BenchmarkEventsOfOneKeyRecent(b *testing.B) { benchmarkEvents(b, 998_000, "rare", "", 3) }

func BenchmarkEventsOfOneKey(b *testing.B) { benchmarkEvents(b, 1, "rare", "", 1000) }

func BenchmarkEventsOfSmallRange(b *testing.B) { benchmarkEvents(b, 1, "rare", "rarf", 1000) }

func BenchmarkEventsOfAll(b *testing.B) { benchmarkEvents(b, 1, "\x00", "\x00", 1_000_000) }

func BenchmarkEventsNewest(b *testing.B) { benchmarkEvents(b, 1_000_001, "\x00", "\x00", 1) }

// BenchmarkLoad loads and checks 100,000 keys and as many events.
func BenchmarkLoad(b *testing.B) {
	s := filled(b, 100_000)
	s.Compact(s.Revision())
	for i := range 100_000 {
		put(b, s, fmt.Sprintf("k%06d", i*7919%100_000), "v")
	}
	f := s.Freeze()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := load(f); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkTxnCheck is the check of a transaction of 128 puts in two nested
// transactions.
func BenchmarkTxnCheck(b *testing.B) {
	t := &Txn{}
	for range 2 {
		n := &Txn{}
		for range 63 {
			n.Success = append(n.Success, Op{Put: &PutOp{Key: fmt.Appendf(nil, "k%d-%d", len(t.Success), len(n.Success))}})
		}
		t.Success = append(t.Success, Op{Txn: n})
	}
	b.ReportAllocs()
	for b.Loop() {
		if err := t.Check(); err != nil {
			b.Fatal(err)
		}
	}
}
