package state

import (
	"cmp"
	"slices"

	"github.com/leasehold-dev/leasehold/raftstore/mvcc"
)

// decodeKeys reads a frame of those that came with keys.
func (in *restorer) decodeKeys(kind uint8, c *coder) error {
	s := in.s
	switch kind {
	case frameEtcdLease:
		var part []*Session
		list(c, &part, leaseSize, codeLease)
		return in.leaseSessions(c, part)
	case frameKeys:
		var m mvcc.Meta
		if codeKeysMeta(c, &m); in.keys != nil {
			return damaged("keys come twice")
		}
		in.keys = mvcc.NewLoader(m)
	case frameKeyBase, frameKeyLog:
		return in.keyRecords(kind, c)
	case frameSequences:
		var part []sequenceRow
		list(c, &part, 2, func(c *coder, q *sequenceRow) { q.code(c) })
		for _, q := range part {
			if _, twice := s.sequences[q.prefix]; twice && c.err == nil {
				return damaged("sequence %.64q comes twice", q.prefix)
			}
			s.sequences[q.prefix] = q.number
		}
	case frameAlarms:
		if s.alarms != nil {
			return damaged("alarms come twice")
		}
		list(c, &s.alarms, 1, number[uint64])
	default:
		return in.decodeAccess(kind, c)
	}
	return nil
}

// keyRecords reads records to the end of the frame.
func (in *restorer) keyRecords(kind uint8, c *coder) error {
	if in.keys == nil {
		return damaged("frame %d without the revisions of keys", kind)
	}
	for len(c.buf) > 0 {
		var err error
		if kind == frameKeyBase {
			kv := new(mvcc.KeyValue)
			if codeKV(c, kv); c.err == nil {
				err = in.keys.Base(kv)
			}
		} else {
			var e mvcc.Event
			if codeKeyEvent(c, &e); c.err == nil {
				err = in.keys.Log(e)
			}
		}
		if err != nil {
			return damaged("%v", err)
		}
	}
	return nil
}

// leaseSessions comes after all lease tables, which know sessions of workers
// alone, by their position. The two orders are merged in the end.
func (in *restorer) leaseSessions(c *coder, part []*Session) error {
	if c.err != nil {
		return nil
	}
	s := in.s
	for _, x := range part {
		if _, known := s.sessions[x.ID]; known || x.ID <= in.lastLease {
			return damaged("lease %d is out of order", x.ID)
		}
		in.lastLease = x.ID
		s.sessions[x.ID] = x
		s.sessionOrder = append(s.sessionOrder, x)
		if x.fresh {
			s.fresh = append(s.fresh, x)
		}
	}
	return nil
}

// finishKeys puts the store together and attaches its keys to their sessions.
func (in *restorer) finishKeys() error {
	s := in.s
	if in.lastLease != 0 {
		slices.SortFunc(s.sessionOrder, func(a, b *Session) int { return cmp.Compare(a.ID, b.ID) })
	}
	if in.keys == nil {
		return nil
	}
	keys, err := in.keys.Store()
	if err != nil {
		return damaged("%v", err)
	}
	s.keys = keys
	for kv := range keys.Keys() {
		if kv.Lease == 0 {
			continue
		}
		x, ok := s.sessions[SessionID(kv.Lease)]
		if !ok {
			return damaged("key %.64q is attached to session %d, which does not exist", kv.Key, kv.Lease)
		}
		x.attach(kv.Key)
	}
	return nil
}
