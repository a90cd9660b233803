package state

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-dev/leasehold/raftstore/mvcc"
)

// keyWorld applies commands one by one to a state at the level of keys.
type keyWorld struct {
	t     testing.TB
	s     *State
	index uint64
}

func newKeyWorld(t testing.TB) *keyWorld {
	w := &keyWorld{t: t, s: New()}
	w.do(&Bootstrap{ClusterID: "c", FirstToken: 1})
	w.do(&RaiseFeature{Term: 1, Level: 2})
	return w
}

// try returns the result, do fails on a refusal.
func (w *keyWorld) try(c Command) Result {
	w.index++
	return one(w.s, w.index, 1, c)
}

func (w *keyWorld) do(c Command) Result {
	w.t.Helper()
	r := w.try(c)
	if r.Err != nil {
		w.t.Fatalf("%T: %v", c, r.Err)
	}
	return r
}

func (w *keyWorld) check() {
	w.t.Helper()
	if err := w.s.Check(); err != nil {
		w.t.Fatal(err)
	}
}

// nested is a transaction of that many levels.
func nested(levels int) *Transact {
	t := mvcc.Txn{}
	for range levels - 1 {
		inner := t
		t = mvcc.Txn{Success: []mvcc.Op{{Txn: &inner}}}
	}
	return &Transact{Txn: t}
}

// As deep as a transaction may be that has an operation on every level, and no
// deeper: neither written, nor read from an entry that somebody else wrote.
func TestNestingOfTransactionsIsBounded(t *testing.T) {
	deepest := &Batch{Commands: []Command{nested(maxTxnDepth)}}
	data := encode(t, deepest)
	if _, err := DecodeBatch(data); err != nil {
		t.Fatal(err)
	}
	if err := nested(maxTxnDepth).Txn.Check(); err != nil {
		t.Errorf("as deep as can be: %v", err)
	}
	if err := nested(maxTxnDepth + 1).Txn.Check(); !errors.Is(err, mvcc.ErrTooManyOps) {
		t.Errorf("deeper: %v", err)
	}
	dst := []byte("head")
	got, err := AppendBatch(dst, &Batch{Commands: []Command{nested(maxTxnDepth + 1), &Tick{}}})
	if err == nil || string(got) != "head" {
		t.Errorf("deeper: written, %v", err)
	}
	body := []byte{0} // no compares
	for range 100_000 {
		body = append(body, 1, opTxn, 0)
	}
	if _, err := DecodeBatch(entryOf(cmdTransact, body)); err == nil {
		t.Error("100,000 levels were read")
	}
}

// entryOf is a batch of one command with that body.
func entryOf(number uint16, body []byte) []byte {
	data := []byte{batchVersion, 0, 0, 1, byte(number)}
	data = binary.LittleEndian.AppendUint32(data, uint32(len(body)))
	return append(data, body...)
}

// What is read costs no more than a small multiple of what was sent, of
// whatever it is the most of.
func TestDecodingTransactionsAllocatesASmallMultiple(t *testing.T) {
	const size = 1 << 20
	many := func(element ...byte) []byte {
		body := binary.AppendUvarint([]byte{0}, size/uint64(len(element)))
		for range size / len(element) {
			body = append(body, element...)
		}
		return append(body, 0)
	}
	for name, body := range map[string][]byte{
		"operations of no kind": many(opNone),
		"transactions":          many(opTxn, 0, 0, 0),
		"puts":                  many(opPut, 0, 0, 0, 0),
		"ranges":                many(opRange, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0),
		"deletions":             many(opDelete, 0, 0, 0),
		"operations that lack":  binary.AppendUvarint([]byte{0}, math.MaxInt64),
		"bytes that lack":       append([]byte{0, 1, opPut}, binary.AppendUvarint(nil, math.MaxInt64)...),
	} {
		data := entryOf(cmdTransact, body)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := DecodeBatch(data)
		runtime.ReadMemStats(&after)
		if lacks := strings.HasSuffix(name, "lack"); (err != nil) != lacks {
			t.Errorf("%s: %v", name, err)
		}
		if n := after.TotalAlloc - before.TotalAlloc; n > 64*uint64(len(data))+8192 {
			t.Errorf("%s: %d bytes allocated for %d", name, n, len(data))
		}
	}
}

// An entry is not kept alive by the keys that came with it.
func TestDecodedBytesAreCopies(t *testing.T) {
	data := encode(t, &Batch{Commands: []Command{putCommand("key", "value", 0)}})
	b, err := DecodeBatch(data)
	if err != nil {
		t.Fatal(err)
	}
	clear(data)
	if p := b.Commands[0].(*Transact).Txn.Success[0].Put; string(p.Key) != "key" || string(p.Value) != "value" {
		t.Errorf("put of %q = %q", p.Key, p.Value)
	}
}

// Thirty years of clock and 285 of TTL are more than a number of nanoseconds
// holds.
func TestDeadlineOfTheLongestLeaseDoesNotOverflow(t *testing.T) {
	w := newKeyWorld(t)
	w.s.clock = 30 * 365 * 24 * time.Hour
	w.s.nextSweep = w.s.clock + time.Hour
	x := w.do(&GrantLease{Session: 1, TTL: MaxLeaseTTL}).Session
	if x.Granted() != MaxLeaseTTL || x.Deadline != math.MaxInt64 || x.Remaining(w.s.Now()) < 200*365*24*time.Hour {
		t.Errorf("granted %d s, deadline %d, %s remain", x.Granted(), x.Deadline, x.Remaining(w.s.Now()))
	}
	w.do(&Tick{Term: 1})
	r := w.do(&KeepAlive{Term: 1, Elapsed: time.Second, Sessions: []SessionID{1}})
	if r.Sessions[0].Err != nil || time.Duration(r.Sessions[0].TTLMillis)*time.Millisecond != MaxLeaseTTL*time.Second {
		t.Errorf("renewed for %d ms, %v", r.Sessions[0].TTLMillis, r.Sessions[0].Err)
	}
	y, _ := w.s.Session(1)
	if r := w.do(&Expire{Term: 1, Elapsed: time.Second, Sessions: []Expiry{{1, y.Renewal}}}); ReasonOf(r.Sessions[0].Err) != ReasonConflict {
		t.Errorf("expired %s before its time", y.Remaining(w.s.Now()))
	}
	w.check()
	if _, err := Restore(bytes.NewReader(snapshotOf(t, w.s))); err != nil {
		t.Error(err)
	}
}

func TestKeysOfOneSessionAreBounded(t *testing.T) {
	w := newKeyWorld(t)
	w.do(&GrantLease{Session: 1, TTL: 60})
	w.do(&GrantLease{Session: 2, TTL: 60})
	fill := func(from, n int, lease int64) *Transact {
		c := &Transact{}
		for i := range n {
			c.Txn.Success = append(c.Txn.Success, mvcc.Op{Put: &mvcc.PutOp{Key: fmt.Appendf(nil, "k%06d", from+i), Lease: lease}})
		}
		return c
	}
	at := 0
	for ; at+mvcc.MaxOps <= MaxSessionKeys-5; at += mvcc.MaxOps {
		w.do(fill(at, mvcc.MaxOps, 1))
	}
	w.do(fill(at, MaxSessionKeys-5-at, 1))
	before, revision := w.s.Keys().Len(), w.s.Keys().Revision()
	r := w.try(fill(MaxSessionKeys-5, 6, 1))
	if ReasonOf(r.Err) != ReasonInvalid || !strings.Contains(r.Err.Error(), "100001") || !strings.Contains(r.Err.Error(), "at most 100000 keys") {
		t.Errorf("one too many: %v", r.Err)
	}
	if w.s.Keys().Len() != before || r.KVRevision != revision {
		t.Error("a refused transaction was half carried out")
	}
	w.do(fill(MaxSessionKeys-10, 10, 1)) // five are there, five are new
	w.do(fill(0, 6, 1))
	w.do(fill(0, 6, 2))
	w.do(fill(0, 6, 1)) // its own again
	if r := w.try(&Enqueue{Name: []byte("q"), Session: 1}); ReasonOf(r.Err) != ReasonInvalid || w.s.LastToken() != 0 {
		t.Errorf("a full session in a queue: %v, token %d", r.Err, w.s.LastToken())
	}
	if r := w.try(&Sequence{Prefix: []byte("s"), Session: 1}); ReasonOf(r.Err) != ReasonInvalid || w.s.SequenceCount() != 0 {
		t.Errorf("a full session in a sequence: %v", r.Err)
	}
	revision = w.s.Keys().Revision()
	if r := w.do(&RevokeLease{Session: 1}); r.KVRevision != revision+1 || w.s.Keys().Len() != 0 {
		t.Errorf("revision %d after %d, %d keys left", r.KVRevision, revision, w.s.Keys().Len())
	}
	w.check()
}

func TestSequencesAreBounded(t *testing.T) {
	w := newKeyWorld(t)
	for i := range MaxSequences {
		w.s.sequences[fmt.Sprintf("p%d", i)] = 1
	}
	if r := w.try(&Sequence{Prefix: []byte("new")}); ReasonOf(r.Err) != ReasonInvalid || !strings.Contains(r.Err.Error(), "100000") {
		t.Errorf("one prefix too many: %v", r.Err)
	}
	if r := w.do(&Sequence{Prefix: []byte("p7")}); r.Ticket.Number != 2 {
		t.Errorf("a known prefix: %+v", r.Ticket)
	}
	for n, ok := range map[int]bool{0: false, 1: true, MaxPrefixLen: true, MaxPrefixLen + 1: false} {
		w.s.sequences = map[string]uint64{}
		r := w.try(&Sequence{Prefix: bytes.Repeat([]byte{0xff}, n)})
		if (r.Err == nil) != ok || !ok && !strings.Contains(r.Err.Error(), "1 to 512 bytes") {
			t.Errorf("a prefix of %d bytes: %v", n, r.Err)
		}
	}
}

// Keys that were put by hand are passed, but not without end in one step.
func TestSequencePassesKeysOfOthers(t *testing.T) {
	w := newKeyWorld(t)
	put := func(from, n uint64) {
		for at := from; at < from+n; at += mvcc.MaxOps {
			c := &Transact{}
			for i := at; i < min(at+mvcc.MaxOps, from+n); i++ {
				c.Txn.Success = append(c.Txn.Success, mvcc.Op{Put: &mvcc.PutOp{Key: SequenceKey([]byte("s"), i)}})
			}
			w.do(c)
		}
	}
	put(1, maxPassed)
	if r := w.do(&Sequence{Prefix: []byte("s")}); r.Ticket.Number != maxPassed+1 {
		t.Errorf("number %d after %d keys", r.Ticket.Number, maxPassed)
	}
	put(maxPassed+2, maxPassed+1)
	before := w.s.Keys().Revision()
	if r := w.try(&Sequence{Prefix: []byte("s")}); ReasonOf(r.Err) != ReasonConflict || r.KVRevision != before {
		t.Errorf("too many keys in the way: %v", r.Err)
	}
	if r := w.do(&Sequence{Prefix: []byte("s"), After: 3 * maxPassed}); r.Ticket.Number != 3*maxPassed+1 {
		t.Errorf("number %d", r.Ticket.Number)
	}
}

// A snapshot of large values is written in frames of bounded size, and shows
// what was there when it was taken.
func TestSnapshotStreamsKeys(t *testing.T) {
	w := newKeyWorld(t)
	value := func(i int) string { return strings.Repeat(string(rune('a'+i%26)), 100_000) }
	for i := range 40 {
		w.do(putCommand(fmt.Sprintf("k%d", i%13), value(i), 0))
	}
	w.do(&Compact{Revision: 20})
	p := w.s.Snapshot()
	want := snapshotOf(t, w.s)
	for i := range 40 {
		w.do(putCommand(fmt.Sprintf("k%d", i), "new", 0))
	}
	w.do(&Compact{Revision: w.s.Keys().Revision()})
	var got bytes.Buffer
	if err := p.Write(&got); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got.Bytes(), want) {
		t.Error("the snapshot moved with the state")
	}
	frames := 0
	for at := len(snapshotMagic) + 1; at < len(want); {
		n := int(binary.LittleEndian.Uint32(want[at+1:]))
		if kind := want[at]; kind == frameKeyBase || kind == frameKeyLog {
			frames++
			if n > keyFrame+100_100 {
				t.Errorf("a frame of %d bytes", n)
			}
		}
		at += frameHeader + n
	}
	if frames < 10 {
		t.Errorf("%d frames", frames)
	}
	back, err := Restore(bytes.NewReader(want))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(snapshotOf(t, back), want) {
		t.Error("what was restored is written differently")
	}
}

// A cluster that has no keys writes what one did that knew none.
func TestNoKeysLeaveNoTrace(t *testing.T) {
	s := richState(t)
	for kind := range kindsOf(snapshotOf(t, s)) {
		if kind >= frameEtcdLease {
			t.Errorf("frame %d", kind)
		}
	}
	index, term := s.Applied()
	s = rebased(t, s, Rebase{ClusterID: "new", Index: index + 1, Term: term + 1, First: 1 << 45})
	for kind := range kindsOf(snapshotOf(t, s)) {
		if kind >= frameEtcdLease {
			t.Errorf("frame %d after a restore at level %d", kind, s.Feature())
		}
	}
	// The cluster that the backup is of may have learned of keys since.
	term += 2
	one(s, index+2, term, &RaiseFeature{Term: term, Level: 2})
	if r := one(s, index+3, term, putCommand("a", "1", 0)); r.Err != nil || r.KVRevision < 1<<45 {
		t.Errorf("the first revision is %d, %v", r.KVRevision, r.Err)
	}
	// One that was formed anew begins where etcd does.
	w := newKeyWorld(t)
	if r := w.do(putCommand("a", "1", 0)); r.KVRevision != 2 {
		t.Errorf("the first revision is %d", r.KVRevision)
	}
}

func kindsOf(snapshot []byte) map[uint8]bool {
	kinds := map[uint8]bool{}
	for at := len(snapshotMagic) + 1; at < len(snapshot); {
		if kind := snapshot[at]; kind != frameEnd {
			kinds[kind] = true
		}
		at += frameHeader + int(binary.LittleEndian.Uint32(snapshot[at+1:]))
	}
	return kinds
}

func TestRebaseKeepsKeysThatNoSessionHolds(t *testing.T) {
	s := keyedState(t)
	index, term := s.Applied()
	old, last, kept := s.Keys().Revision(), s.LastToken(), map[string]string{}
	for kv := range s.Keys().Keys() {
		if kv.Lease == 0 {
			kept[string(kv.Key)] = string(kv.Value)
		}
	}
	first := FirstToken(time.UnixMilli(1800000000000))
	s = rebased(t, s, Rebase{ClusterID: "new", Index: index + 1, Term: term + 1, First: first})
	k := s.Keys()
	if k.Revision() < int64(first)-1 || k.Revision() <= old || k.Compacted() != k.Revision() || k.Len() != len(kept) || len(kept) == 0 {
		t.Errorf("%d keys at revision %d after %d, compacted at %d", k.Len(), k.Revision(), old, k.Compacted())
	}
	for kv := range k.Keys() {
		if v, ok := kept[string(kv.Key)]; !ok || v != string(kv.Value) || kv.Lease != 0 {
			t.Errorf("%s, was %q", keyText(kv), v)
		}
	}
	if _, _, err := k.Events(old, k.Revision(), []byte{0}, []byte{0}, 0, nil); err != mvcc.ErrCompacted {
		t.Errorf("a watch of the old cluster goes on: %v", err)
	}
	if s.sequences["s/"] != 11 || s.sequences["r/"] != 1 || len(s.Alarms()) != 0 || s.SessionCount() != 0 {
		t.Errorf("sequences %v, alarms %v, %d sessions", s.sequences, s.Alarms(), s.SessionCount())
	}
	one(s, index+2, term+2, &GrantLease{Session: 5, TTL: 9})
	if r := one(s, index+3, term+2, &Enqueue{Name: []byte("jobs"), Session: 5}); r.Err != nil || Token(r.Ticket.KV.Token) <= max(last, first-1) || r.KVRevision < int64(first) {
		t.Errorf("in the new cluster: %+v, %v", r.Ticket, r.Err)
	}
}

// A lease of keys is nobody's worker, and holds nothing strict back.
func TestLeasesAreNoWorkers(t *testing.T) {
	w := newKeyWorld(t)
	w.do(&CreateKeyspace{Name: "orders", Partitions: 4, Settings: DefaultSettings()})
	before := w.s.Revision()
	w.do(&GrantLease{Session: 5, TTL: MaxLeaseTTL})
	w.do(&OpenSession{Session: 6, Worker: "w", Keyspaces: []string{"orders"}})
	w.do(&GrantLease{Session: 7, TTL: 2})
	if w.s.SessionCount() != 3 || w.s.WorkerSessionCount() != 1 || len(slices.Collect(w.s.Workers())) != 1 {
		t.Errorf("%d sessions, %d of workers, %d workers", w.s.SessionCount(), w.s.WorkerSessionCount(), len(slices.Collect(w.s.Workers())))
	}
	if w.s.LongestTTL() > MaxTTL {
		t.Errorf("after a restore nothing strict for %s", w.s.LongestTTL())
	}
	w.do(&RevokeLease{Session: 5})
	w.do(&CloseSession{Session: 7})
	if events, err := w.s.Events(before, 9, nil); err != nil || len(events) != 1 || events[0].Session != 6 {
		t.Errorf("the ledger has %+v, %v", events, err)
	}
	w.check()
}
