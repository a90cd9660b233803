package sidecar

import (
	"math/rand/v2"
	"sync"
	"time"
)

// How long a partition waits before its command is started again by the same
// sidecar.
const (
	minBackoff = 500 * time.Millisecond
	maxBackoff = time.Minute
	// goodRun is a run after which earlier failures are forgotten.
	goodRun = time.Minute
	// yieldPause is the least time between two starts of a command that ends
	// well.
	yieldPause = time.Second
)

// backoff remembers, per partition, when its command may start again. The
// partition itself is given back at once: another worker may do better, and the
// controller counts the failure. What is bounded here is how often this sidecar
// starts a command that ends at once, however often the partition comes back.
type backoff struct {
	jitter func(time.Duration) time.Duration // 0 … the argument

	mu   sync.Mutex
	runs map[uint32]*record
}

type record struct {
	failures int
	notUntil time.Duration // boot clock
}

func newBackoff() *backoff {
	return &backoff{jitter: func(d time.Duration) time.Duration { return rand.N(d + 1) }, runs: make(map[uint32]*record)}
}

// notUntil is when the command of a partition may start.
func (b *backoff) notUntil(partition uint32) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if r := b.runs[partition]; r != nil {
		return r.notUntil
	}
	return 0
}

// ended notes a command that ended by itself.
func (b *backoff) ended(partition uint32, failed bool, started, now time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := b.runs[partition]
	if r == nil {
		r = &record{}
		b.runs[partition] = r
	}
	if !failed || now-started >= goodRun {
		r.failures = 0
	}
	if !failed {
		r.notUntil = started + yieldPause + b.jitter(yieldPause/4)
		return
	}
	wait := maxBackoff
	if r.failures < 16 { // 2^16 is far above the quotient of max and min
		wait = min(minBackoff<<r.failures, maxBackoff)
	}
	r.failures++
	r.notUntil = now + wait - b.jitter(wait/4)
}

// forget drops what is known of a partition that was handed over in order.
func (b *backoff) forget(partition uint32) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.runs, partition)
}
