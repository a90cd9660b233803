package demo

import (
	"runtime"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/bootclock"
)

// Now reads a clock that all processes of this machine share: the boot clock
// on Linux. Elsewhere the boot clock begins with each process, so the wall
// clock has to do; nothing but the demo's own evidence depends on it.
func Now() time.Duration {
	if runtime.GOOS == "linux" {
		return bootclock.Boot().Now()
	}
	return time.Duration(time.Now().UnixNano())
}

// libraryClock is what a worker's library goes by.
type libraryClock struct{ bootclock.Clock }

// newLibraryClock is this machine's boot clock, unless another one is given.
func newLibraryClock(c bootclock.Clock) libraryClock {
	if c == nil {
		c = bootclock.Boot()
	}
	return libraryClock{c}
}

// shared carries a reading of the library's clock over to Now's.
func (c libraryClock) shared(at time.Duration) time.Duration {
	at = c.right(at)
	if runtime.GOOS == "linux" {
		return at
	}
	return Now() - (c.right(c.Now()) - at)
}

// right is a reading without the fault of a clock that knows it has one.
func (c libraryClock) right(at time.Duration) time.Duration {
	if wrong, ok := c.Clock.(interface {
		True(time.Duration) time.Duration
	}); ok {
		return wrong.True(at)
	}
	return at
}
