package keyrange

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"testing"
)

func decimal(n uint64) string { return strconv.FormatUint(n, 10) }

func parse(t *testing.T, s string) uint32 {
	t.Helper()
	n, err := strconv.ParseUint(s, 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	return uint32(n)
}

func writeVectors(t *testing.T, file string) {
	t.Helper()
	vectors := nasty()
	for i := range vectors {
		v := &vectors[i]
		key := v.key(t)
		v.Hash = decimal(Hash(key))
		v.Partitions = make(map[string]uint32)
		for _, count := range []uint32{1, 3, 256, 65_536, 1 << 20} {
			v.Partitions[decimal(uint64(count))] = Partition(key, count)
		}
	}
	raw, err := json.MarshalIndent(vectors, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, append(raw, '\n'), 0o644); err != nil {
		t.Fatal(err)
	}
}
