package state

import (
	"bytes"
	"fmt"
	"io"
	"runtime"
	"testing"
	"time"

	"github.com/leasehold-dev/leasehold/raftstore/mvcc"
)

// crowd is a state with one keyspace and sessions that have joined it.
func crowd(tb testing.TB, partitions uint32, sessions int) *State {
	tb.Helper()
	s := New()
	cs := []Command{&Bootstrap{ClusterID: "c", FirstToken: 1 << 48}, &CreateKeyspace{Name: "k", Partitions: partitions, Settings: DefaultSettings()}}
	for i := range sessions {
		cs = append(cs, &OpenSession{Session: SessionID(i + 1), Worker: fmt.Sprintf("worker-%04d", i), Keyspaces: []string{"k"}})
	}
	for _, r := range s.Apply(1, 1, &Batch{Commands: cs}) {
		if r.Err != nil {
			tb.Fatal(r.Err)
		}
	}
	return s
}

// plan grants every partition, round robin.
func plan(partitions uint32, sessions int) *Batch {
	g := &Grant{Term: 1, Keyspace: 1, Cause: CauseInitial, Items: make([]GrantItem, partitions)}
	for p := range g.Items {
		g.Items[p] = GrantItem{Partition: uint32(p), Session: SessionID(p%sessions + 1)}
	}
	return &Batch{Commands: []Command{g}}
}

func mustGrant(tb testing.TB, s *State, b *Batch) {
	if r := s.Apply(2, 1, b); r[0].Err != nil || r[0].Items != nil {
		tb.Fatal(r[0].Err, r[0].Items)
	}
}

// BenchmarkApplyGrants65536: to stay below 20 ms.
func BenchmarkApplyGrants65536(b *testing.B) {
	const partitions, sessions = 1 << 16, 1000
	batch := plan(partitions, sessions)
	for b.Loop() {
		b.StopTimer()
		s := crowd(b, partitions, sessions)
		b.StartTimer()
		mustGrant(b, s, batch)
	}
}

// BenchmarkExpire65536 ends one session that holds them all.
func BenchmarkExpire65536(b *testing.B) {
	const partitions = 1 << 16
	batch := plan(partitions, 1)
	tick := &Batch{Commands: []Command{&Tick{Term: 1}}}
	for range 6 {
		tick.Commands = append(tick.Commands, &Tick{Term: 1, Elapsed: 2 * time.Second})
	}
	for b.Loop() {
		b.StopTimer()
		s := crowd(b, partitions, 1)
		mustGrant(b, s, batch)
		s.Apply(3, 1, tick)
		b.StartTimer()
		r := s.Apply(4, 1, &Batch{Commands: []Command{&Expire{Term: 1, Sessions: []Expiry{{1, 1}}}}})
		if r[0].Sessions[0].Err != nil {
			b.Fatal(r[0].Sessions[0].Err)
		}
	}
}

// BenchmarkKeepAlive1000 renews a thousand sessions in one entry.
func BenchmarkKeepAlive1000(b *testing.B) {
	s := crowd(b, 16, 1000)
	k := &KeepAlive{Term: 1, Elapsed: time.Millisecond}
	for i := range 1000 {
		k.Sessions = append(k.Sessions, SessionID(i+1))
	}
	batch := &Batch{Commands: []Command{k}}
	for index := uint64(2); b.Loop(); index++ {
		s.Apply(index, 1, batch)
	}
}

// BenchmarkBytesPerPartition measures the heap that a million owned
// partitions add: to stay at or below 32 bytes each.
func BenchmarkBytesPerPartition(b *testing.B) {
	for b.Loop() {
		before := heap()
		s := crowd(b, MaxPartitions, 1000)
		batch := plan(MaxPartitions, 1000)
		mustGrant(b, s, batch)
		batch.Commands[0].(*Grant).Items = nil
		b.ReportMetric(float64(heap()-before)/MaxPartitions, "B/partition")
		runtime.KeepAlive(s)
	}
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// BenchmarkSnapshot: freeze is what happens under the lock.
func BenchmarkSnapshot(b *testing.B) {
	s := crowd(b, MaxPartitions, 1000)
	mustGrant(b, s, plan(MaxPartitions, 1000))
	var data bytes.Buffer
	if err := s.Snapshot().Write(&data); err != nil {
		b.Fatal(err)
	}
	b.Run("freeze", func(b *testing.B) {
		for b.Loop() {
			s.Snapshot()
		}
	})
	b.Run("write", func(b *testing.B) {
		p := s.Snapshot()
		b.SetBytes(int64(data.Len()))
		for b.Loop() {
			if err := p.Write(io.Discard); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("restore", func(b *testing.B) {
		b.SetBytes(int64(data.Len()))
		for b.Loop() {
			if _, err := Restore(bytes.NewReader(data.Bytes())); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkCodec is an entry of 10,000 grants.
func BenchmarkCodec(b *testing.B) {
	batch := plan(10_000, 1000)
	data := encode(b, batch)
	b.Run("encode", func(b *testing.B) {
		buf := make([]byte, 0, len(data))
		for b.Loop() {
			if _, err := AppendBatch(buf[:0], batch); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("decode", func(b *testing.B) {
		for b.Loop() {
			if _, err := DecodeBatch(data); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// TestStateStaysDense holds the figure without a benchmark run.
func TestStateStaysDense(t *testing.T) {
	const partitions = MaxPartitions
	before := heap()
	s := crowd(t, partitions, 100)
	mustGrant(t, s, plan(partitions, 100))
	per := float64(heap()-before) / partitions
	if per > 34 {
		t.Errorf("%.1f bytes a partition", per)
	}
	t.Logf("%.1f bytes a partition", per)
	runtime.KeepAlive(s)
}

// BenchmarkRevokeFullSession ends a session with as many keys as one can have.
func BenchmarkRevokeFullSession(b *testing.B) {
	for b.Loop() {
		b.StopTimer()
		w := newKeyWorld(b)
		w.do(&GrantLease{Session: 1, TTL: 60})
		for at := 0; at < MaxSessionKeys; at += mvcc.MaxOps {
			c := &Transact{}
			for i := at; i < min(at+mvcc.MaxOps, MaxSessionKeys); i++ {
				c.Txn.Success = append(c.Txn.Success, mvcc.Op{Put: &mvcc.PutOp{Key: fmt.Appendf(nil, "key/%06d", i), Lease: 1}})
			}
			w.do(c)
		}
		b.StartTimer()
		w.do(&RevokeLease{Session: 1})
	}
}

// BenchmarkPut applies entries of 100 puts with a lease; one operation is one
// put.
func BenchmarkPut(b *testing.B) {
	w := newKeyWorld(b)
	w.do(&GrantLease{Session: 1, TTL: 60})
	batch := &Batch{}
	for i := range 100 {
		batch.Commands = append(batch.Commands, putCommand(fmt.Sprintf("key/%d", i), "value", 1))
	}
	for i := 0; b.Loop(); i++ {
		if i%100 == 0 {
			w.index++
			w.s.Apply(w.index, 1, batch)
		}
		if i%10_000 == 9_999 {
			w.do(&Compact{Revision: w.s.Keys().Revision()})
		}
	}
}
