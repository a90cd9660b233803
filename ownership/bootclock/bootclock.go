// Package bootclock reads the clock that lease deadlines are counted on: time
// since some fixed moment of this machine's (or process's) past, that never
// goes back and that goes on while the machine is suspended where the
// operating system can tell.
//
// Go's own monotonic reading is CLOCK_MONOTONIC on Linux, which stands still
// during suspend: a worker that slept for an hour would believe that a lease
// of ten seconds is still its own. CLOCK_BOOTTIME counts the hour.
//
// A virtual machine that its hypervisor has paused may see no gap in either
// clock. No clock inside it can help then; the fencing token does.
//
// Readings of two clocks, and of one clock in two processes, must not be
// compared, except that on Linux all processes of one machine share Boot.
//
// The package starts no goroutine.
package bootclock

import "time"

// Clock tells the time that has passed since a fixed moment. Now never goes
// back and may be called from any goroutine.
type Clock interface {
	Now() time.Duration
}

// Boot returns the clock that counts suspend: CLOCK_BOOTTIME on Linux. On
// other systems, and should that clock be missing, it is Monotonic.
func Boot() Clock { return boot() }

// Monotonic returns a clock that counts time.Since from this call. It does not
// count suspend. Inside a testing/synctest bubble it follows the bubble's fake
// time, which Boot cannot.
func Monotonic() Clock { return monotonic{start: time.Now()} }

type monotonic struct{ start time.Time }

func (m monotonic) Now() time.Duration { return time.Since(m.start) }
