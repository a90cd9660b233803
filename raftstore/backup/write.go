package backup

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash"
	"hash/crc32"
	"io"

	"github.com/leasehold-dev/leasehold/raftstore/state"
)

const (
	magic         = "LHBACKUP"
	formatVersion = 1

	maxManifest = 1 << 16
	maxBlock    = 1 << 18
	headSize    = len(magic) + 1
	partHead    = 8                   // length and CRC
	trailerSize = 4 + 8 + sha256.Size // end, length of the snapshot, sum
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// partSum is the CRC of a part: its length is covered, too.
func partSum(length, payload []byte) uint32 {
	return crc32.Update(crc32.Checksum(length, castagnoli), castagnoli, payload)
}

// Write writes a backup and returns its size. The snapshot is encoded while it
// is written, block by block.
func Write(w io.Writer, m Manifest, s *state.Snapshot) (int64, error) {
	b := &writer{w: w, sum: sha256.New(), block: make([]byte, partHead, partHead+maxBlock)}
	m.Format = formatVersion
	text, err := json.Marshal(m)
	if err == nil && len(text) > maxManifest {
		err = fmt.Errorf("%d bytes, at most %d", len(text), maxManifest)
	}
	if err != nil {
		return 0, fmt.Errorf("write backup: manifest: %w", err)
	}
	b.put(append([]byte(magic), formatVersion))
	b.part(append(make([]byte, partHead), text...))
	if err := s.Write(b); err != nil {
		return b.written, fmt.Errorf("write backup: %w", err)
	}
	if len(b.block) > partHead {
		b.part(b.block)
	}
	end := binary.LittleEndian.AppendUint32(nil, 0)
	b.put(binary.LittleEndian.AppendUint64(end, b.snapshot))
	b.put(b.sum.Sum(nil))
	if b.err != nil {
		return b.written, fmt.Errorf("write backup: %w", b.err)
	}
	return b.written, nil
}

// Size is how many bytes Write will write. It costs one encoding.
func Size(m Manifest, s *state.Snapshot) (int64, error) { return Write(io.Discard, m, s) }

// writer gathers the snapshot into blocks. Its first error sticks.
type writer struct {
	w        io.Writer
	sum      hash.Hash
	written  int64
	snapshot uint64 // bytes of the snapshot
	block    []byte // room for the head, then what has been gathered
	err      error
}

// Write takes bytes of the snapshot.
func (b *writer) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 && b.err == nil {
		room := min(partHead+maxBlock-len(b.block), len(p))
		b.block = append(b.block, p[:room]...)
		p = p[room:]
		b.snapshot += uint64(room)
		if len(b.block) == partHead+maxBlock {
			b.part(b.block)
			b.block = b.block[:partHead]
		}
	}
	if b.err != nil {
		return 0, b.err
	}
	return n, nil
}

// part fills in the head of a part, for which it has left room, and writes it.
func (b *writer) part(p []byte) {
	payload := p[partHead:]
	binary.LittleEndian.PutUint32(p, uint32(len(payload)))
	binary.LittleEndian.PutUint32(p[4:], partSum(p[:4], payload))
	b.put(p)
}

func (b *writer) put(p []byte) {
	if b.err != nil {
		return
	}
	b.sum.Write(p) // never fails
	var n int
	n, b.err = b.w.Write(p)
	b.written += int64(n)
}
