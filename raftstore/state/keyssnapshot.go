package state

import (
	"cmp"
	"encoding/binary"
	"slices"

	"github.com/leasehold-dev/leasehold/raftstore/mvcc"
)

// keyFrame is from what size on a frame of keys is closed: it is at most this
// and one pair.
const keyFrame = 256 << 10

// frozenKeys is the part of a Snapshot that is about keys.
type frozenKeys struct {
	store     *mvcc.Frozen // nil: it is as new
	sequences []sequenceRow
	sorted    bool
	alarms    []uint64
}

// sequenceRow is one prefix and the highest number it has given.
type sequenceRow struct {
	prefix string
	number uint64
}

func (q *sequenceRow) code(c *coder) {
	text(c, &q.prefix)
	number(c, &q.number)
}

func (s *State) freezeKeys() frozenKeys {
	f := frozenKeys{alarms: slices.Clone(s.alarms)}
	if store := s.keys.Freeze(); store.Meta() != mvcc.New().Freeze().Meta() {
		f.store = store
	}
	if n := len(s.sequences); n > 0 {
		f.sequences = make([]sequenceRow, 0, n)
		for prefix, n := range s.sequences {
			f.sequences = append(f.sequences, sequenceRow{prefix, n})
		}
	}
	return f
}

// write writes the frames of keys, none for what there is nothing of. b is a
// buffer to use, and what it has become.
func (f *frozenKeys) write(out *summing, b []byte) []byte {
	if f.store != nil {
		b = f.writeStore(out, b)
	}
	if !f.sorted {
		slices.SortFunc(f.sequences, func(a, b sequenceRow) int { return cmp.Compare(a.prefix, b.prefix) })
		f.sorted = true
	}
	for part := range slices.Chunk(f.sequences, frameSessionN) {
		b = appendFrame(b[:0], frameSequences, func(c *coder) {
			list(c, &part, 2, func(c *coder, q *sequenceRow) { q.code(c) })
		})
		out.write(b)
	}
	if len(f.alarms) > 0 {
		b = appendFrame(b[:0], frameAlarms, func(c *coder) { list(c, &f.alarms, 1, number[uint64]) })
		out.write(b)
	}
	return b
}

func (f *frozenKeys) writeStore(out *summing, b []byte) []byte {
	m := f.store.Meta()
	b = appendFrame(b[:0], frameKeys, func(c *coder) { codeKeysMeta(c, &m) })
	out.write(b)
	w := recordWriter{out: out, c: coder{buf: b}}
	w.begin(frameKeyBase)
	for kv := range f.store.Base() {
		codeKV(&w.c, kv)
		if !w.next() {
			return w.c.buf
		}
	}
	w.end()
	w.begin(frameKeyLog)
	for e := range f.store.Log() {
		codeKeyEvent(&w.c, &e)
		if !w.next() {
			return w.c.buf
		}
	}
	w.end()
	return w.c.buf
}

// recordWriter packs records into frames of bounded size, one after the other
// to the end of the frame.
type recordWriter struct {
	out  *summing
	kind uint8
	c    coder
}

func (w *recordWriter) begin(kind uint8) {
	w.kind = kind
	w.c.buf = append(w.c.buf[:0], kind, 0, 0, 0, 0)
}

// next ends a record; false: nothing more can be written.
func (w *recordWriter) next() bool {
	if len(w.c.buf) >= keyFrame {
		w.end()
		w.begin(w.kind)
	}
	return w.out.err == nil
}

// end writes the frame, unless it is empty.
func (w *recordWriter) end() {
	if n := len(w.c.buf) - frameHeader; n > 0 {
		binary.LittleEndian.PutUint32(w.c.buf[1:], uint32(n))
		w.out.write(w.c.buf)
	}
}

// appendLeases encodes the sessions that belong to no worker.
func (s *State) appendLeases(b []byte) []byte {
	if s.WorkerSessionCount() == len(s.sessionOrder) {
		return b
	}
	leases := slices.DeleteFunc(slices.Clone(s.sessionOrder), func(x *Session) bool { return !x.isLease() })
	for part := range slices.Chunk(leases, frameSessionN) {
		b = appendFrame(b, frameEtcdLease, func(c *coder) { list(c, &part, leaseSize, codeLease) })
	}
	return b
}

const leaseSize = 14 // least bytes of an encoded lease

func codeLease(c *coder, p **Session) {
	x := *p
	if c.reading {
		x = &Session{State: SessionLive}
		*p = x
	}
	fixed(c, &x.ID)
	signed(c, &x.TTL)
	signed(c, &x.Opened)
	number(c, &x.Renewal)
	signed(c, &x.Deadline)
	signed(c, &x.renewed)
	c.flag(&x.fresh)
}

func codeKeysMeta(c *coder, m *mvcc.Meta) {
	revision(c, &m.Revision)
	c.varint(&m.Compacted)
}

func codeKV(c *coder, kv *mvcc.KeyValue) {
	blob(c, &kv.Key)
	blob(c, &kv.Value)
	revision(c, &kv.CreateRevision)
	revision(c, &kv.ModRevision)
	revision(c, &kv.Version)
	leaseID(c, &kv.Lease)
	number(c, &kv.Token)
}

// codeKeyEvent leaves out what was there before: it follows from the rest. Of a
// deletion there are key and revision alone.
func codeKeyEvent(c *coder, e *mvcc.Event) {
	c.flag(&e.Delete)
	if c.reading {
		e.KV = new(mvcc.KeyValue)
	}
	if !e.Delete {
		codeKV(c, e.KV)
		return
	}
	blob(c, &e.KV.Key)
	revision(c, &e.KV.ModRevision)
}
