package queue

import (
	"bytes"

	"github.com/leasehold-dev/leasehold/raftstore/mvcc"
	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// maxHex is how many digits the largest session has.
const maxHex = 16

// KeyOf is the key of a session's place in the queue of name.
func KeyOf(name []byte, session state.SessionID) []byte { return state.QueueKey(name, session) }

// ParseKey takes a key apart. ok is false when it has not the form of a place: a
// slash at the end and a session in lower hex, without leading zeros. Sessions are
// signed there, as leases are in etcd's clients.
func ParseKey(key []byte) (name []byte, session state.SessionID, ok bool) {
	slash := bytes.LastIndexByte(key, '/')
	if slash < 0 {
		return nil, 0, false
	}
	digits := key[slash+1:]
	negative := len(digits) > 0 && digits[0] == '-'
	if negative {
		digits = digits[1:]
	}
	id, ok := parseHex(digits)
	switch {
	case !ok, negative && id > 1<<63, !negative && id > 1<<63-1:
		return nil, 0, false
	case negative:
		id = -id
	}
	return key[:slash], state.SessionID(id), true
}

func parseHex(digits []byte) (n uint64, ok bool) {
	if len(digits) == 0 || len(digits) > maxHex || digits[0] == '0' {
		return 0, false
	}
	for _, c := range digits {
		switch {
		case c >= '0' && c <= '9':
			n = n<<4 | uint64(c-'0')
		case c >= 'a' && c <= 'f':
			n = n<<4 | uint64(c-'a'+10)
		default:
			return 0, false
		}
	}
	return n, true
}

// IsPlace reports whether a pair is a place in a queue: its key has the form, and
// it is attached to the session that the key names.
func IsPlace(kv *mvcc.KeyValue) bool {
	_, session, ok := ParseKey(kv.Key)
	return ok && kv.Lease == int64(session)
}

// spans are the ranges of keys in which the places of name lie: a digit that is
// not zero, or a sign, follows the slash. Keys of deeper names mostly lie outside.
func spans(name []byte) [3]mvcc.RangeOp {
	at := func(c byte) []byte { return append(append(append([]byte(nil), name...), '/'), c) }
	return [3]mvcc.RangeOp{
		{Key: at('-'), End: at('-' + 1)},
		{Key: at('1'), End: at('9' + 1)},
		{Key: at('a'), End: at('f' + 1)},
	}
}

// places yields the places of name as they are now, in no particular order.
func places(keys *mvcc.Store, name []byte, yield func(*mvcc.KeyValue)) error {
	for _, op := range spans(name) {
		res, err := keys.Range(&op)
		if err != nil {
			return err
		}
		for _, kv := range res.KVs {
			// A session's hex has no slash, so a deeper name is never taken for this one.
			if of, _, ok := ParseKey(kv.Key); ok && len(of) == len(name) && IsPlace(kv) {
				yield(kv)
			}
		}
	}
	return nil
}
