package demo

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"sync"
	"time"
)

// Source is the numbered stream of orders. Order n of a partition arrives at
// a time that the start and the pace fix, so all workers agree about it
// without talking to each other. The driver ends the stream at one number.
type Source struct {
	Seed       int64         `json:"seed"`
	Partitions uint32        `json:"partitions"`
	Start      time.Duration `json:"start_ns"` // shared clock
	Pace       time.Duration `json:"pace_ns"`  // between two orders of a partition
}

// Due is when order n (from 1) of a partition arrives. Partitions are spread
// over the pace.
func (s *Source) Due(partition uint32, n int64) time.Duration {
	offset := s.Pace * time.Duration(partition) / time.Duration(s.Partitions)
	return s.Start + offset + time.Duration(n-1)*s.Pace
}

// Arrived is the number of the newest order at a time, over all partitions.
func (s *Source) Arrived(at time.Duration) int64 {
	if at < s.Start {
		return 0
	}
	return int64((at-s.Start)/s.Pace) + 1
}

// Item is what order n says: it depends on the seed and nothing else, so the
// ledger can be checked against it.
func (s *Source) Item(partition uint32, n int64) string {
	h := fnv.New64a()
	for _, v := range []uint64{uint64(s.Seed), uint64(partition), uint64(n)} {
		_ = binary.Write(h, binary.BigEndian, v) // a hash never fails
	}
	return fmt.Sprintf("order %d/%d %016x", partition, n, h.Sum64())
}

// closing tells handlers the last order, once the driver has named it.
type closing struct {
	once   sync.Once
	closed chan struct{}
	last   int64 // valid once closed is closed
}

func newClosing() *closing { return &closing{closed: make(chan struct{})} }

func (c *closing) at(last int64) {
	c.once.Do(func() { c.last = last; close(c.closed) })
}

// over says whether order n will never come.
func (c *closing) over(n int64) bool {
	select {
	case <-c.closed:
		return n > c.last
	default:
		return false
	}
}
