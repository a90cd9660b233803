package demo

import (
	"runtime"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/bootclock"
)

// now reads a clock that all processes of this machine share: the boot clock
// on Linux. Elsewhere the boot clock begins with each process, so the wall
// clock has to do; nothing but the demo's own evidence depends on it.
func now() time.Duration {
	if runtime.GOOS == "linux" {
		return bootclock.Boot().Now()
	}
	return time.Duration(time.Now().UnixNano())
}

// shared carries a reading of the worker library's clock over to now's.
func shared(at time.Duration) time.Duration {
	if runtime.GOOS == "linux" {
		return at
	}
	return now() - (processClock.Now() - at)
}

// processClock is given to the worker library, so that shared knows it.
var processClock = bootclock.Boot()
