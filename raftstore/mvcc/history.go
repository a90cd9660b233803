package mvcc

import "sort"

// chunk is how many entries lie in one piece: history grows without moving.
const chunk = 512

// entry is one change, with what was there before its revision, nil if that is
// nothing or was compacted, or if the change created the key.
type entry struct{ v, prev *version }

func (e entry) revision() int64 { return e.v.kv.ModRevision }

func (e entry) event() Event { return Event{Delete: e.v.del, KV: &e.v.kv, Prev: e.prev.pair()} }

// history is every change from the compacted revision on, in order. It is
// appended to only, so that a copy of the struct is a copy of the content.
type history struct {
	chunks []*[chunk]entry
	n      int
}

func (h *history) append(e entry) {
	if h.n%chunk == 0 {
		h.chunks = append(h.chunks, new([chunk]entry))
	}
	h.chunks[h.n/chunk][h.n%chunk] = e
	h.n++
}

func (h *history) at(i int) entry { return h.chunks[i/chunk][i%chunk] }

// from is the index of the first entry at or above a revision.
func (h *history) from(revision int64) int {
	c := sort.Search(h.n/chunk, func(c int) bool { return h.chunks[c][chunk-1].revision() >= revision })
	lo := c * chunk
	return lo + sort.Search(min(chunk, h.n-lo), func(i int) bool { return h.chunks[c][i].revision() >= revision })
}
