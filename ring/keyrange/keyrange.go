// Package keyrange says which partition of a keyspace a key belongs to.
//
// The 64-bit hash of a key (xxHash64, seed 0) is a point on a line from 0 to
// 2^64-1. A keyspace of P partitions cuts the line into P ranges of equal
// length, give or take one:
//
//	0                                                              2^64-1
//	├───── 0 ─────┼───── 1 ─────┼───── 2 ─────┼─── … ───┼──── P-1 ────┤
//
// so a partition is the high word of hash × P. There is no modulo: a partition
// is a contiguous range, which is what storage and routers want, and doubling P
// would split each range in two.
//
// Keys are bytes. Nothing is normalised, trimmed or decoded: two spellings of
// one accented letter are two keys. The empty key is a key like any other.
// This mapping is for ever: a client in any language that reproduces the
// vectors in testdata/vectors.json agrees with every server.
//
// The package is pure: no state, no goroutine.
package keyrange

import (
	"math/bits"

	"github.com/cespare/xxhash/v2"
)

// MaxPartitions is the largest number of partitions that a keyspace may have.
const MaxPartitions = 1 << 20

// Hash returns the point of key on the line: its xxHash64 with seed 0.
func Hash(key []byte) uint64 { return xxhash.Sum64(key) }

// Partition returns the partition, 0 … partitions-1, that key belongs to in a
// keyspace of that many partitions. With partitions 0, which no keyspace has,
// it returns 0.
func Partition(key []byte, partitions uint32) uint32 {
	return Locate(Hash(key), partitions)
}

// Locate returns the partition whose range holds the point hash.
func Locate(hash uint64, partitions uint32) uint32 {
	hi, _ := bits.Mul64(hash, uint64(partitions))
	return uint32(hi)
}

// Range returns the first and the last point (both inclusive) of partition p:
// Partition(key, partitions) == p exactly when first <= Hash(key) <= last.
//
// It panics when p is not below partitions: a range for it would silently
// belong to somebody else.
func Range(p, partitions uint32) (first, last uint64) {
	if p >= partitions {
		panic("keyrange: partition out of range")
	}
	first = start(p, partitions)
	if p == partitions-1 {
		return first, ^uint64(0)
	}
	return first, start(p+1, partitions) - 1
}

// start returns ⌈p·2^64 / partitions⌉, the least hash with
// ⌊hash·partitions / 2^64⌋ = p. p is below partitions, so it fits 64 bits.
func start(p, partitions uint32) uint64 {
	q, r := bits.Div64(uint64(p), 0, uint64(partitions))
	if r != 0 {
		q++
	}
	return q
}
