package backup

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"
)

// resum makes the sums of a file right, as far as it has the shape of one, so
// that a fuzzer gets past them.
func resum(data []byte) []byte {
	b := slices.Clone(data)
	snapshot := uint64(0)
	for at, first := headSize, true; at+4 <= len(b); first = false {
		n := int(binary.LittleEndian.Uint32(b[at:]))
		if n == 0 {
			if at+trailerSize != len(b) {
				return b
			}
			binary.LittleEndian.PutUint64(b[at+4:], snapshot)
			sum := sha256.Sum256(b[:at+12])
			copy(b[at+12:], sum[:])
			return b
		}
		if n > maxBlock || at+partHead+n > len(b) {
			return b
		}
		binary.LittleEndian.PutUint32(b[at+4:], partSum(b[at:at+4], b[at+partHead:at+partHead+n]))
		if !first {
			snapshot += uint64(n)
		}
		at += partHead + n
	}
	return b
}
