package state

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/leasehold-dev/leasehold/raftstore/mvcc"
)

func parseKeyCommand(word string, a args, term uint64) (Command, bool) {
	session := SessionID(a.uint("session"))
	value := []byte(a.str("value"))
	if len(value) == 0 {
		value = nil
	}
	switch word {
	case "level":
		return &RaiseFeature{Term: term, Level: Feature(num(a.items()[0]))}, true
	case "put":
		it := a.items()
		return putCommand(it[0], it[1], int64(a.uint("lease"))), true
	case "del":
		d := &mvcc.DeleteOp{Key: []byte(a.items()[0]), End: []byte(a.str("end"))}
		return &Transact{Txn: mvcc.Txn{Success: []mvcc.Op{{Delete: d}}}}, true
	case "compact":
		return &Compact{Revision: int64(a.uint("rev"))}, true
	case "lease":
		return &GrantLease{Session: session, TTL: int64(a.uint("ttl")), Owner: a.str("owner")}, true
	case "revokelease":
		return &RevokeLease{Session: session}, true
	case "enqueue":
		return &Enqueue{Name: []byte(a.str("name")), Session: session, Value: value, Update: a.str("update") == "true"}, true
	case "seq":
		return &Sequence{Prefix: []byte(a.str("prefix")), Value: value, Session: session, After: a.uint("after")}, true
	case "alarm", "noalarm":
		return &SetAlarm{Member: a.uint("member"), Raised: word == "alarm"}, true
	}
	return nil, false
}

func putCommand(key, value string, lease int64) *Transact {
	return &Transact{Txn: mvcc.Txn{Success: []mvcc.Op{{Put: &mvcc.PutOp{Key: []byte(key), Value: []byte(value), Lease: lease}}}}}
}

// restart goes on from a snapshot of what is there.
func (st *storyteller) restart() error {
	var b bytes.Buffer
	if err := st.s.Snapshot().Write(&b); err != nil {
		return err
	}
	s, err := Restore(&b)
	st.s = s
	return err
}

// rebase goes on in a new cluster.
func (st *storyteller) rebase(a args) error {
	st.index, st.term = st.index+1, st.term+1
	return st.s.Rebase(Rebase{ClusterID: fmt.Sprintf("test%d", st.index), Index: st.index, Term: st.term, First: Token(a.uint("first"))})
}

// keyResult tells the answer of a command on keys.
func (st *storyteller) keyResult(prefix string, r *Result) bool {
	if t := r.Ticket; t != nil {
		fmt.Fprintf(&st.out, "%sticket %s created=%t number=%d revision=%d\n", prefix, keyText(t.KV), t.Created, t.Number, r.KVRevision)
		return true
	}
	if r.KV != nil {
		fmt.Fprintf(&st.out, "%sok succeeded=%t revision=%d\n", prefix, r.KV.Succeeded, r.KVRevision)
		return true
	}
	return false
}

// keyEvents tells the changes of keys after a revision.
func (st *storyteller) keyEvents(after int64) {
	k := st.s.Keys()
	if k.Revision() == after {
		return
	}
	events, _, err := k.Events(after+1, k.Revision(), []byte{0}, []byte{0}, 0, nil)
	if err != nil {
		fmt.Fprintf(&st.out, "  keys: %v\n", err)
	}
	for i := range events {
		e := &events[i]
		if !e.Delete {
			fmt.Fprintf(&st.out, "  @%d put %s\n", e.Revision(), keyText(e.KV))
			continue
		}
		was := ""
		if e.Prev != nil {
			was = ", was " + string(e.Prev.Value)
		}
		fmt.Fprintf(&st.out, "  @%d delete %s%s\n", e.Revision(), e.KV.Key, was)
	}
}

func keyText(kv *mvcc.KeyValue) string {
	text := fmt.Sprintf("%s=%s create=%d version=%d", kv.Key, kv.Value, kv.CreateRevision, kv.Version)
	if kv.Lease != 0 {
		text += fmt.Sprintf(" lease=%d", kv.Lease)
	}
	if kv.Token != 0 {
		text += fmt.Sprintf(" token=%d", kv.Token)
	}
	return text
}

func (st *storyteller) showKeys() {
	s := st.s
	for x := range s.Sessions() {
		if x.isLease() {
			fmt.Fprintf(&st.out, "lease %d ttl=%ds remaining=%s renewal=%d%s\n", x.ID, x.Granted(), x.Remaining(s.Now()), x.Renewal, ownerText(x))
		}
		if keys := s.SessionKeys(x.ID); len(keys) > 0 {
			fmt.Fprintf(&st.out, "  keys of %d: %q\n", x.ID, keys)
		}
	}
	if k := s.Keys(); k.Revision() > 1 {
		fmt.Fprintf(&st.out, "keys at revision %d, compacted at %d\n", k.Revision(), k.Compacted())
		for kv := range k.Keys() {
			fmt.Fprintf(&st.out, "  %s\n", keyText(kv))
		}
	}
	for _, prefix := range sortedKeys(s.sequences) {
		fmt.Fprintf(&st.out, "sequence %s at %d\n", prefix, s.sequences[prefix])
	}
	if a := s.Alarms(); len(a) > 0 {
		slices.Sort(a)
		fmt.Fprintf(&st.out, "alarms %v\n", a)
	}
}
