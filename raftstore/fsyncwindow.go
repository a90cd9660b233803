package raftstore

import (
	"math"
	"sync"
	"time"
)

// FsyncWindow is how long synced writes to the log took over the last one to
// two minutes. The quantiles are upper bounds, at most 19 % too high.
type FsyncWindow struct {
	Count         int
	P50, P99, Max time.Duration
}

// fsyncSpan is how long one of the two halves of the window lasts.
const fsyncSpan = time.Minute

// fsyncTimes keeps a histogram of this minute and one of the minute before.
type fsyncTimes struct {
	mu       sync.Mutex
	started  time.Time
	now, old fsyncMinute
}

type fsyncMinute struct {
	counts [fsyncBuckets]int
	max    time.Duration
}

// Bucket i ends at fsyncLeast × 2^(i/4); the last is open.
const (
	fsyncBuckets = 96
	fsyncLeast   = 10 * time.Microsecond
)

func fsyncBucket(d time.Duration) int {
	if d <= fsyncLeast {
		return 0
	}
	return min(int(math.Ceil(4*math.Log2(float64(d)/float64(fsyncLeast)))), fsyncBuckets-1)
}

func (t *fsyncTimes) add(d time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.turnLocked()
	t.now.counts[fsyncBucket(d)]++
	t.now.max = max(t.now.max, d)
}

func (t *fsyncTimes) turnLocked() {
	now := time.Now()
	switch age := now.Sub(t.started); {
	case age < fsyncSpan:
		return
	case age < 2*fsyncSpan:
		t.old = t.now
	default:
		t.old = fsyncMinute{}
	}
	t.now, t.started = fsyncMinute{}, now
}

func (t *fsyncTimes) window() FsyncWindow {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.turnLocked()
	counts := t.old.counts
	w := FsyncWindow{Max: max(t.old.max, t.now.max)}
	for i, n := range t.now.counts {
		counts[i] += n
		w.Count += counts[i]
	}
	quantile := func(q float64) time.Duration {
		rank := int(math.Ceil(q * float64(w.Count)))
		for i, n := range counts {
			if rank -= n; rank <= 0 {
				return min(time.Duration(float64(fsyncLeast)*math.Pow(2, float64(i)/4)), w.Max)
			}
		}
		return w.Max
	}
	if w.Count > 0 {
		w.P50, w.P99 = quantile(.5), quantile(.99)
	}
	return w
}
