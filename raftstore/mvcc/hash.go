package mvcc

import (
	"encoding/binary"
	"hash/crc32"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Hash sums all versions up to revision (0 or less: now) as HashKV; it is the same on all servers
// that were compacted at the same revision. It walks over the whole store.
func (s *Store) Hash(revision int64) (hash uint32, hashRevision int64, err error) {
	switch {
	case revision <= 0:
		revision = s.revision
	case revision > s.revision:
		return 0, 0, ErrFuture
	case revision < s.compacted:
		return 0, 0, ErrCompacted
	}
	var h hasher
	s.tree.Ascend(func(n node) bool {
		if kv := n.it.at(s.compacted).pair(); kv != nil {
			h.add(false, kv)
		}
		return true
	})
	for i := range s.history.n {
		e := s.history.at(i)
		if e.revision() > revision {
			break
		}
		h.add(e.v.del, &e.v.kv)
	}
	return h.sum, revision, nil
}

type hasher struct {
	sum uint32
	buf []byte
}

func (h *hasher) add(del bool, kv *KeyValue) {
	b := h.buf[:0]
	if del {
		b = append(b, 1)
	} else {
		b = append(b, 0)
	}
	for _, n := range [...]int64{kv.CreateRevision, kv.ModRevision, kv.Version, kv.Lease, int64(kv.Token)} {
		b = binary.AppendVarint(b, n)
	}
	for _, text := range [...][]byte{kv.Key, kv.Value} {
		b = append(binary.AppendUvarint(b, uint64(len(text))), text...)
	}
	h.sum, h.buf = crc32.Update(h.sum, castagnoli, b), b
}
