package keyrange

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"pgregory.net/rapid"
)

var update = flag.Bool("update", false, "rewrite testdata/vectors.json")

var partitionCounts = []uint32{1, 2, 3, 7, 64, 256, 271, 4096, 65_535, 65_536, 1<<20 - 1, 1 << 20}

// vector is one line of testdata/vectors.json, for implementations in other
// languages. Hash is decimal in a string, because JSON numbers are floats.
type vector struct {
	Name       string            `json:"name"`
	KeyHex     string            `json:"key_hex"`          // the bytes to repeat
	Repeat     int               `json:"repeat,omitempty"` // 1 when absent
	Hash       string            `json:"xxhash64"`
	Partitions map[string]uint32 `json:"partitions"` // partition count -> partition
}

func (v vector) key(t *testing.T) []byte {
	t.Helper()
	b, err := hex.DecodeString(v.KeyHex)
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Repeat(b, max(1, v.Repeat))
}

// nasty are keys that were treated differently by different parts of other
// systems (O-70), and the lengths at which xxHash64 changes its way.
func nasty() []vector {
	named := []struct {
		name string
		key  string
	}{
		{"empty", ""}, {"nul", "\x00"}, {"nul inside", "a\x00b"}, {"0xff", "\xff"}, {"e acute, composed", "\u00e9"},
		{"e acute, decomposed", "e\u0301"}, {"trailing space", "a "}, {"plain", "a"}, {"dots", "a/../b"}, {"emoji", "\U0001f600"},
		{"invalid utf-8", "\xc3\x28"}, {"newline", "a\nb"}, {"percent", "a%2Fb"}, {"number", "42"}, {"order", "order-12345"},
		{"upper case", "A"}, {"byte order mark", "\ufeffa"}, {"3 bytes", "abc"}, {"4 bytes", "abcd"}, {"7 bytes", "abcdefg"},
		{"8 bytes", "abcdefgh"}, {"31 bytes", "0123456789abcdef0123456789abcde"}, {"32 bytes", "0123456789abcdef0123456789abcdef"},
		{"33 bytes", "0123456789abcdef0123456789abcdef0"},
	}
	var all []vector
	for _, n := range named {
		all = append(all, vector{Name: n.name, KeyHex: hex.EncodeToString([]byte(n.key))})
	}
	return append(all, vector{Name: "1 MB", KeyHex: "00ff10ef20df30cf", Repeat: 1 << 17})
}

// O-70: whoever computes the partition must come to the same one. The expected
// values in the file are for ever; -update is for new lines only.
func TestNastyKeysGiveTheSamePartitionEverywhere(t *testing.T) {
	file := filepath.Join("testdata", "vectors.json")
	if *update {
		writeVectors(t, file)
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var vectors []vector
	if err := json.Unmarshal(raw, &vectors); err != nil {
		t.Fatal(err)
	}
	if len(vectors) != len(nasty()) {
		t.Fatalf("%d vectors in the file, %d here", len(vectors), len(nasty()))
	}
	seen := make(map[string]string)
	for _, v := range vectors {
		key := v.key(t)
		if got := decimal(Hash(key)); got != v.Hash {
			t.Errorf("%s: hash %s, want %s", v.Name, got, v.Hash)
		}
		for count, want := range v.Partitions {
			if got := Partition(key, parse(t, count)); got != want {
				t.Errorf("%s: partition %d of %s, want %d", v.Name, got, count, want)
			}
		}
		if other, ok := seen[v.Hash]; ok {
			t.Errorf("%s and %s have one hash: something was normalised", v.Name, other)
		}
		seen[v.Hash] = v.Name
	}
}

// Fixed values from the specification of xxHash64, not from our own code.
func TestHashIsXXHash64WithSeedZero(t *testing.T) {
	for key, want := range map[string]uint64{
		"":    0xef46db3751d8e999,
		"a":   0xd24ec4f1a98c6e5b,
		"abc": 0x44bc2cf5ad770999,
	} {
		if got := Hash([]byte(key)); got != want {
			t.Errorf("hash of %q is %#x, want %#x", key, got, want)
		}
	}
}

func TestPartitionLiesInItsRange(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		key := rapid.SliceOf(rapid.Byte()).Draw(t, "key")
		partitions := drawPartitions(t)
		p := Partition(key, partitions)
		if p >= partitions {
			t.Fatalf("partition %d of %d", p, partitions)
		}
		first, last := Range(p, partitions)
		if h := Hash(key); h < first || h > last {
			t.Fatalf("hash %#x of partition %d/%d is outside %#x…%#x", h, p, partitions, first, last)
		}
	})
}

// The points at both ends of a range belong to it, those beyond to the next.
func TestRangeEndsAreExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		partitions := drawPartitions(t)
		p := rapid.Uint32Range(0, partitions-1).Draw(t, "partition")
		first, last := Range(p, partitions)
		if Locate(first, partitions) != p || Locate(last, partitions) != p {
			t.Fatalf("ends of %d/%d lie in %d and %d", p, partitions, Locate(first, partitions), Locate(last, partitions))
		}
		if p > 0 && Locate(first-1, partitions) != p-1 {
			t.Fatalf("the point before %d/%d lies in %d", p, partitions, Locate(first-1, partitions))
		}
		if p < partitions-1 && Locate(last+1, partitions) != p+1 {
			t.Fatalf("the point after %d/%d lies in %d", p, partitions, Locate(last+1, partitions))
		}
	})
}

// No gap, no overlap, all of the line, and lengths that differ by one at most.
func TestRangesCoverTheLine(t *testing.T) {
	for _, partitions := range partitionCounts {
		next, wrapped := uint64(0), false
		shortest, longest := ^uint64(0), uint64(0)
		for p := range partitions {
			first, last := Range(p, partitions)
			if wrapped || first != next || last < first {
				t.Fatalf("range %d/%d is %#x…%#x, expected to start at %#x", p, partitions, first, last, next)
			}
			shortest, longest = min(shortest, last-first), max(longest, last-first)
			next, wrapped = last+1, last == ^uint64(0)
		}
		if !wrapped {
			t.Fatalf("%d partitions end at %#x", partitions, next-1)
		}
		if longest-shortest > 1 {
			t.Fatalf("%d partitions: lengths from %d to %d", partitions, shortest, longest)
		}
	}
}

func TestDoublingSplitsEachRange(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		key := rapid.SliceOf(rapid.Byte()).Draw(t, "key")
		partitions := rapid.Uint32Range(1, MaxPartitions/2).Draw(t, "partitions")
		if got, want := Partition(key, 2*partitions)/2, Partition(key, partitions); got != want {
			t.Fatalf("of %d the key is in %d, of twice as many in a half of %d", partitions, want, got)
		}
	})
}

func TestOutOfRangePanics(t *testing.T) {
	for _, c := range [][2]uint32{{1, 1}, {0, 0}, {1 << 20, 1 << 20}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("Range(%d, %d) returned", c[0], c[1])
				}
			}()
			Range(c[0], c[1])
		}()
	}
	if got := Partition([]byte("a"), 0); got != 0 {
		t.Errorf("partition %d of none", got)
	}
}

func drawPartitions(t *rapid.T) uint32 {
	return rapid.OneOf(rapid.SampledFrom(partitionCounts), rapid.Uint32Range(1, MaxPartitions)).Draw(t, "partitions")
}

func BenchmarkPartition(b *testing.B) {
	for name, key := range map[string][]byte{"16B": make([]byte, 16), "1KB": make([]byte, 1024)} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				Partition(key, 65_536)
			}
		})
	}
}
