package state

import (
	"math"
	"slices"

	"github.com/leasehold-dev/leasehold/raftstore/mvcc"
	"pgregory.net/rapid"
)

func (w *world) key() []byte {
	return []byte(rapid.SampledFrom([]string{"a", "b", "ab", "q/1", "q/2", "s0000000000000000003", "\x00", ""}).Draw(w.t, "key"))
}

func (w *world) value() []byte {
	if v := rapid.StringN(0, 3, 9).Draw(w.t, "value"); v != "" {
		return []byte(v)
	}
	return nil
}

func (w *world) end() []byte {
	switch e := rapid.SampledFrom([]string{"", "", "b", "r", "\x00"}).Draw(w.t, "end"); e {
	case "":
		return nil
	default:
		return []byte(e)
	}
}

// holder is mostly a session, or none.
func (w *world) holder() int64 {
	if rapid.IntRange(0, 2).Draw(w.t, "free") == 0 {
		return 0
	}
	return int64(w.session())
}

func (w *world) op(depth int) mvcc.Op {
	switch rapid.IntRange(0, 9).Draw(w.t, "op") {
	case 0, 1, 2, 3:
		p := &mvcc.PutOp{Key: w.key(), Value: w.value(), Lease: w.holder(), PrevKV: rapid.Bool().Draw(w.t, "prev")}
		if rapid.IntRange(0, 7).Draw(w.t, "keep") == 0 {
			p.IgnoreLease, p.Lease = true, 0
		}
		if rapid.IntRange(0, 7).Draw(w.t, "keep value") == 0 {
			p.IgnoreValue, p.Value = true, nil
		}
		return mvcc.Op{Put: p}
	case 4, 5:
		return mvcc.Op{Delete: &mvcc.DeleteOp{Key: w.key(), End: w.end(), PrevKV: rapid.Bool().Draw(w.t, "prev")}}
	case 6, 7:
		return mvcc.Op{Range: &mvcc.RangeOp{
			Key: w.key(), End: w.end(), Limit: int64(rapid.IntRange(0, 3).Draw(w.t, "limit")),
			Revision: int64(rapid.IntRange(-1, 9).Draw(w.t, "at")), Target: mvcc.SortTarget(rapid.IntRange(0, 5).Draw(w.t, "target")),
			Order: mvcc.SortOrder(rapid.IntRange(0, 3).Draw(w.t, "order")), KeysOnly: rapid.Bool().Draw(w.t, "keys only"),
		}}
	case 8:
		if depth > 0 {
			t := w.txn(depth - 1)
			return mvcc.Op{Txn: &t}
		}
	}
	return mvcc.Op{}
}

func (w *world) txn(depth int) (t mvcc.Txn) {
	for range rapid.IntRange(0, 1).Draw(w.t, "compares") {
		c := mvcc.Compare{
			Key: w.key(), End: w.end(), Target: mvcc.CompareTarget(rapid.IntRange(0, 5).Draw(w.t, "compare")),
			Result: mvcc.CompareResult(rapid.IntRange(0, 4).Draw(w.t, "relation")),
		}
		if c.Target == mvcc.CompareValue {
			c.Value = w.value()
		} else {
			c.Number = int64(rapid.IntRange(0, 12).Draw(w.t, "number"))
		}
		t.Compare = append(t.Compare, c)
	}
	for _, ops := range []*[]mvcc.Op{&t.Success, &t.Failure} {
		for range rapid.IntRange(0, 3).Draw(w.t, "ops") {
			*ops = append(*ops, w.op(depth))
		}
	}
	return t
}

func (w *world) keyCommand() Command {
	switch rapid.IntRange(0, 15).Draw(w.t, "key command") {
	case 0, 1, 2, 3, 4:
		return &Transact{Txn: w.txn(2)}
	case 5, 6:
		return &GrantLease{
			Session: SessionID(rapid.IntRange(0, 20).Draw(w.t, "lease")),
			TTL:     rapid.SampledFrom([]int64{math.MinInt64, 0, 2, 5, MaxLeaseTTL, MaxLeaseTTL + 1}).Draw(w.t, "lease ttl"),
			Owner:   w.owner(),
		}
	case 7:
		return &RevokeLease{Session: w.session()}
	case 8, 9, 10:
		return &Enqueue{Name: []byte("q"), Session: w.session(), Value: w.value(), Update: rapid.Bool().Draw(w.t, "update")}
	case 11, 12:
		return &Sequence{
			Prefix: []byte(rapid.SampledFrom([]string{"s", "t", ""}).Draw(w.t, "prefix")), Value: w.value(), Session: SessionID(w.holder()),
			After: rapid.SampledFrom([]uint64{0, 0, 0, 1, 9, MaxSequence - 1, math.MaxUint64}).Draw(w.t, "after"),
		}
	case 13:
		return &Compact{Revision: w.s.Keys().Revision() - int64(rapid.IntRange(-1, 9).Draw(w.t, "compact"))}
	case 14:
		return &SetAlarm{Member: rapid.Uint64Range(0, 2).Draw(w.t, "member"), Raised: rapid.IntRange(0, 3).Draw(w.t, "raised") == 0}
	default:
		return &RaiseFeature{Term: w.term, Level: Feature(rapid.IntRange(2, 3).Draw(w.t, "level"))}
	}
}

// seenKeys is what the promises about keys are about, before an entry.
type seenKeys struct {
	revision int64
	keys     map[string]*mvcc.KeyValue
	numbers  map[string]uint64
	sessions map[SessionID]bool
	alarmed  bool
	level    Feature
}

func lookAtKeys(s *State) seenKeys {
	v := seenKeys{
		revision: s.Keys().Revision(), keys: map[string]*mvcc.KeyValue{}, numbers: map[string]uint64{},
		sessions: map[SessionID]bool{}, alarmed: len(s.alarms) > 0, level: s.Feature(),
	}
	for kv := range s.Keys().Keys() {
		v.keys[string(kv.Key)] = kv
	}
	for prefix, n := range s.sequences {
		v.numbers[prefix] = n
	}
	for x := range s.Sessions() {
		v.sessions[x.ID] = true
	}
	return v
}

// drawnBy are the tokens that keys were created with, in order.
func drawnBy(results []Result) (drawn []Token) {
	for _, r := range results {
		if r.Ticket != nil && r.Ticket.Created && r.Ticket.KV.Token != 0 {
			drawn = append(drawn, Token(r.Ticket.KV.Token))
		}
	}
	return drawn
}

// keyPromises compares the keys after an entry with those before it.
func keyPromises(t *rapid.T, s *State, before seen, results []Result) {
	was, k := before.keys, s.Keys()
	revision := was.revision
	for _, r := range results {
		// One command is at most one revision, but for sessions that run out in
		// one Expire, each at its own.
		if r.KVRevision < revision || r.KVRevision > revision+max(1, int64(len(r.Sessions))) {
			t.Fatalf("revision %d after %d", r.KVRevision, revision)
		}
		revision = r.KVRevision
	}
	if revision != k.Revision() {
		t.Fatalf("the last result tells revision %d, the store is at %d", revision, k.Revision())
	}
	for prefix, n := range was.numbers {
		if s.sequences[prefix] < n {
			t.Fatalf("sequence %q went from %d to %d", prefix, n, s.sequences[prefix])
		}
	}
	given := map[string]bool{}
	for _, r := range results {
		tk := r.Ticket
		if tk == nil {
			continue
		}
		if tk.Created && (tk.KV.Version != 1 || tk.KV.CreateRevision != r.KVRevision) {
			t.Fatalf("ticket %+v of %s at revision %d", tk, keyText(tk.KV), r.KVRevision)
		}
		if tk.Number != 0 {
			prefix := string(tk.KV.Key[:len(tk.KV.Key)-19])
			if string(SequenceKey([]byte(prefix), tk.Number)) != string(tk.KV.Key) || tk.Number <= was.numbers[prefix] || given[string(tk.KV.Key)] {
				t.Fatalf("number %d of %q after %d", tk.Number, prefix, was.numbers[prefix])
			}
			given[string(tk.KV.Key)] = true
		}
	}
	if was.level < featureKeys && s.Feature() < featureKeys && k.Revision() != 1 {
		t.Fatal("keys at a level that knows none")
	}
	keysLiveAndDie(t, s, &was)
}

// keysLiveAndDie: a key keeps its token while it lives, keys of one name and
// rising revisions have rising tokens, and a session takes its keys along, all
// of them at one revision.
func keysLiveAndDie(t *rapid.T, s *State, was *seenKeys) {
	k := s.Keys()
	var queue []*mvcc.KeyValue
	for kv := range k.Keys() {
		old := was.keys[string(kv.Key)]
		if old != nil && old.CreateRevision == kv.CreateRevision && old.Token != kv.Token {
			t.Fatalf("the token of %s was %d", keyText(kv), old.Token)
		}
		if kv.Token != 0 {
			queue = append(queue, kv)
		}
		if _, ok := s.Session(SessionID(kv.Lease)); kv.Lease != 0 && !ok {
			t.Fatalf("%s outlives its session", keyText(kv))
		}
	}
	slices.SortFunc(queue, func(a, b *mvcc.KeyValue) int { return int(a.CreateRevision - b.CreateRevision) })
	for i := 1; i < len(queue); i++ {
		if queue[i].Token <= queue[i-1].Token {
			t.Fatalf("%s is behind %s in the queue", keyText(queue[i]), keyText(queue[i-1]))
		}
	}
}
