package faults

import (
	"sync"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/bootclock"
)

// Clock is the boot clock at a rate that is a little wrong. It never goes
// back, whatever becomes of the rate.
type Clock struct {
	real bootclock.Clock
	rate func() int // parts per million too fast

	mu       sync.Mutex
	ppm      int
	atReal   time.Duration // where the present rate began, on the real clock
	atFaulty time.Duration // and on this one
}

// Clock returns a clock that follows the settings.
func (s *Source) Clock() *Clock {
	return newClock(s.real, func() int { return s.Now().ClockPPM })
}

func newClock(real bootclock.Clock, rate func() int) *Clock {
	at := real.Now()
	return &Clock{real: real, rate: rate, ppm: rate(), atReal: at, atFaulty: at}
}

// Now reads the clock.
func (c *Clock) Now() time.Duration {
	ppm := c.rate()
	c.mu.Lock()
	defer c.mu.Unlock()
	// Read under the lock: an older reading after a newer one would go back.
	real := c.real.Now()
	faulty := c.atFaulty + stretch(real-c.atReal, c.ppm)
	if ppm != c.ppm {
		c.ppm, c.atReal, c.atFaulty = ppm, real, faulty
	}
	return faulty
}

// True is what the real clock showed when this one showed at. It is exact back
// to the last change of the rate.
func (c *Clock) True(at time.Duration) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	since := at - c.atFaulty
	return c.atReal + time.Duration(float64(since)/(1+float64(c.ppm)/1e6))
}

func stretch(d time.Duration, ppm int) time.Duration {
	return d + time.Duration(float64(d)*float64(ppm)/1e6)
}
