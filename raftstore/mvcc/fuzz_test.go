package mvcc

import (
	"testing"

	"pgregory.net/rapid"
)

// FuzzStore lets the fuzzer choose the stories of TestStoreAgainstModel.
func FuzzStore(f *testing.F) { f.Fuzz(rapid.MakeFuzz(story)) }

// FuzzLoader gives the loader records of any kind: it refuses them, or makes a
// store that tells the same ones again.
func FuzzLoader(f *testing.F) {
	f.Add([]byte{3, 0})
	f.Add([]byte{8, 7, 0, 'a', 4, 6, 2, 2, 'a', 4, 6, 2, 3, 'c', 0, 6, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		take := func() (n int64) {
			if len(b) > 0 {
				n, b = int64(b[0]), b[1:]
			}
			return n
		}
		l := NewLoader(Meta{Revision: take(), Compacted: take() - 1})
		for len(b) > 0 {
			kind := take()
			kv := &KeyValue{Key: []byte{byte(take())}, CreateRevision: take(), ModRevision: take(), Version: take()}
			var err error
			if kind%4 < 2 {
				err = l.Base(kv)
			} else {
				err = l.Log(Event{Delete: kind%4 == 3, KV: kv})
			}
			if err != nil {
				return
			}
		}
		s, err := l.Store()
		if err != nil {
			return
		}
		again, err := load(s.Freeze())
		if err != nil {
			t.Fatal(err)
		}
		if got, want := streams(again.Freeze()), streams(s.Freeze()); got != want {
			t.Fatalf("loaded again\n%s\nfrom\n%s", got, want)
		}
	})
}

// FuzzTxnCheck compares the check of overlapping writes with one that compares
// everything with everything.
func FuzzTxnCheck(f *testing.F) {
	f.Add([]byte{5, 1, 1, 6, 1, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		txn := &Txn{}
		txn.Success = fuzzOps(&b, 4)
		txn.Failure = fuzzOps(&b, 4)
		if got, want := txn.Check(), modelCheck(txn); got != want {
			t.Fatalf("%s\n%v, want %v", print(txn), got, want)
		}
	})
}

// fuzzOps reads operations until a 0 or the end.
func fuzzOps(b *[]byte, depth int) (ops []Op) {
	take := func() (c byte) {
		if len(*b) > 0 {
			c, *b = (*b)[0], (*b)[1:]
		}
		return c
	}
	for c := take(); c != 0; c = take() {
		switch c % 4 {
		case 0:
			ops = append(ops, Op{Put: &PutOp{Key: []byte{take()}}})
		case 1:
			ops = append(ops, Op{Delete: &DeleteOp{Key: []byte{take()}}})
		case 2:
			ops = append(ops, Op{Delete: &DeleteOp{Key: []byte{take()}, End: []byte{take()}}})
		case 3:
			if depth > 0 {
				ops = append(ops, Op{Txn: &Txn{Success: fuzzOps(b, depth-1), Failure: fuzzOps(b, depth-1)}})
			}
		}
	}
	return ops
}
