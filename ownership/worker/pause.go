package worker

import "time"

// The loop says with each look at the clock when it will look again at the
// latest. What it comes late by is time in which this process stood still:
// stopped, starved of the processor, or suspended with its machine. A TTL that
// does not clear the longest of these pauses loses leases for no other reason.

const (
	// pauseSlice times pauseSlices is how far back pauses are remembered.
	pauseSlice  = 30 * time.Second
	pauseSlices = 20
)

// pauses remembers the longest pause of the last ten minutes, in slices. It is
// pure; the core feeds it with clock readings.
type pauses struct {
	expected time.Duration // latest time of the next look; 0: none was promised
	longest  [pauseSlices]time.Duration
	slice    int64 // number of the newest slice
}

// look notes that the loop looks at the clock.
func (p *pauses) look(now time.Duration) {
	p.turn(now)
	if late := now - p.expected; p.expected > 0 && late > 0 {
		at := &p.longest[p.slice%pauseSlices]
		*at = max(*at, late)
	}
}

// promise notes when the loop will look again at the latest.
func (p *pauses) promise(at time.Duration) { p.expected = at }

// turn forgets the slices that are too old.
func (p *pauses) turn(now time.Duration) {
	slice := int64(now / pauseSlice)
	for n := max(p.slice, slice-pauseSlices); n < slice; n++ {
		p.longest[(n+1)%pauseSlices] = 0
	}
	p.slice = max(p.slice, slice)
}

// max is the longest pause that is remembered.
func (p *pauses) max() time.Duration {
	longest := time.Duration(0)
	for _, d := range p.longest {
		longest = max(longest, d)
	}
	return longest
}
