package server

import (
	"sync"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"github.com/leasehold-dev/leasehold/raftstore/mvcc"
	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// keyHealth adds what the key store holds.
func (s *Server) keyHealth(m *leaseholdv1.ServerHealth) {
	k := &leaseholdv1.KeyFigures{
		QuotaBytes: s.cfg.QuotaBytes, CompactAgeMs: s.cfg.CompactAge.Milliseconds(), CompactRevisions: s.cfg.CompactRevisions,
	}
	var frozen *mvcc.Frozen
	s.store.View(func(st *state.State) {
		keys := st.Keys()
		k.Keys, k.Bytes = int64(keys.Len()), keys.Size()
		k.Revision, k.CompactedRevision = keys.Revision(), keys.Compacted()
		k.NoSpace = len(st.Alarms()) > 0
		frozen = keys.Freeze()
	})
	k.ValueBytesMax, k.ValueBytesMean = s.vitals.values.look(k.GetRevision(), time.Now(), func() (int64, int64) { return valueSizes(frozen) })
	m.Keys = k
}

// valueSizes reads all kept versions, which takes about 0.1 s for a million.
func valueSizes(f *mvcc.Frozen) (largest, mean int64) {
	var sum, n int64
	take := func(kv *mvcc.KeyValue) {
		size := int64(len(kv.Value))
		largest, sum, n = max(largest, size), sum+size, n+1
	}
	for kv := range f.Base() {
		take(kv)
	}
	compacted := f.Meta().Compacted
	for ev := range f.Log() {
		if !ev.Delete && ev.Revision() > compacted { // what is older is in the base
			take(ev.KV)
		}
	}
	return largest, sum / max(n, 1)
}

// valuesEvery is how often they are read at most: monitoring asks all the time.
const valuesEvery = 30 * time.Second

// valueLook keeps the sizes of values for a while.
type valueLook struct {
	mu            sync.Mutex
	revision      int64
	at            time.Time
	largest, mean int64
}

func (l *valueLook) look(revision int64, now time.Time, measure func() (largest, mean int64)) (largest, mean int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.at.IsZero() || revision != l.revision && now.Sub(l.at) >= valuesEvery {
		l.revision, l.at = revision, now
		l.largest, l.mean = measure()
	}
	return l.largest, l.mean
}
