package state

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"testing"
)

// FuzzDecodeBatch: any input is refused or read, what was read is written
// back to something that reads the same, and applying it breaks nothing.
func FuzzDecodeBatch(f *testing.F) {
	f.Add(encode(f, fullBatch()))
	f.Add(encode(f, &Batch{}))
	f.Add(encode(f, &Batch{Commands: []Command{&SetAlarm{Member: 7}, &SetAlarm{Member: 5}, putCommand("k", "v", 60), &RevokeLease{Session: 60}}}))
	f.Add(encode(f, &Batch{Commands: []Command{
		&RevokeCredential{ID: "abc123abc123"}, &OpenSession{Session: 5, Worker: "o1", Incarnation: 26, Keyspaces: []string{"orders"}, Owner: "worker/o2"},
		&SetKeyring{Version: 2, Keys: [][]byte{make([]byte, 16)}},
	}}))
	for _, c := range everyCommand() {
		f.Add(encode(f, &Batch{Commands: []Command{c}}))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		b, err := DecodeBatch(data)
		if err != nil {
			return
		}
		first := encode(t, b)
		again, err := DecodeBatch(first)
		if err != nil {
			t.Fatalf("what was decoded cannot be read again: %v", err)
		}
		if !bytes.Equal(encode(t, again), first) {
			t.Fatal("encoding is not stable")
		}
		// Two replicas, one of which has been restarted, get the same bytes.
		other, err := Restore(bytes.NewReader(snapshotOf(t, ownedState(t))))
		if err != nil {
			t.Fatal(err)
		}
		twin, err := DecodeBatch(data)
		if err != nil {
			t.Fatal(err)
		}
		for i, s := range []*State{ownedState(t), richState(t)} {
			index, term := s.Applied()
			s.Apply(index+1, term, b)
			if err := s.Check(); err != nil {
				t.Fatalf("%v after %s", err, describe(b))
			}
			if i > 0 {
				continue
			}
			other.Apply(index+1, term, twin)
			if !bytes.Equal(snapshotOf(t, s), snapshotOf(t, other)) {
				t.Fatalf("replicas differ after %s", describe(b))
			}
		}
	})
}

// FuzzRestore: any input is refused, or gives a state that holds every
// invariant. The sum is made right, so that the fuzzer gets past it.
func FuzzRestore(f *testing.F) {
	f.Add(snapshotOf(f, richState(f)))
	f.Add(snapshotOf(f, keyedState(f)))
	f.Add(snapshotOf(f, ownedState(f)))
	f.Add(snapshotOf(f, New()))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, input := range [][]byte{data, resum(data)} {
			s, err := Restore(bytes.NewReader(input))
			if err != nil {
				continue
			}
			if err := s.Check(); err != nil {
				t.Fatal(err)
			}
			if _, err := Restore(bytes.NewReader(snapshotOf(t, s))); err != nil {
				t.Fatalf("what was restored cannot be restored again: %v", err)
			}
		}
	})
}

// resum replaces the last frame by a right one.
func resum(data []byte) []byte {
	const tail = frameHeader + 4
	if len(data) < tail {
		return data
	}
	out := bytes.Clone(data[:len(data)-tail])
	out = append(out, frameEnd, 4, 0, 0, 0)
	sum := crc32.Checksum(out, castagnoli)
	return binary.LittleEndian.AppendUint32(out, sum)
}
