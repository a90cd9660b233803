// Package ring tells which member each partition would suit: consistent hashing
// with bounded load, computed by buraksezer/consistent. It is a wish. What
// holds is the lease table; the planner starts from that table and asks the
// ring only where a partition that must move should go.
//
// Promises:
//   - The same members and partitions give the same placement, whatever the
//     order they came in, and whether members were added and removed one by one
//     (Cache) or all at once (New).
//   - No member is wished for more than ⌈1.10 P/N⌉ partitions.
//   - Nothing panics: input is checked, and a panic of the library becomes
//     ErrLibrary, after which its half-changed instance is thrown away.
//
// It does not promise the same placement in another release: placements are
// logged and never recomputed by a second server.
//
// The package is pure: no goroutine, clock, socket, logger or random number.
package ring
