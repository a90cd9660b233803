package bootclock

import (
	"time"

	"golang.org/x/sys/unix"
)

func boot() Clock {
	c := bootTime{}
	// The only documented failure is a kernel without the clock (before 2.6.39);
	// it is asked once so that Now needs no error path.
	if _, err := c.read(); err != nil {
		return Monotonic()
	}
	return c
}

// bootTime has no state: every value of it, in every process of the machine,
// reads the same clock.
type bootTime struct{}

func (c bootTime) Now() time.Duration {
	d, err := c.read()
	if err != nil {
		// It answered when the process started. Going on with an invented time
		// could prolong a lease, so this can only be a bug worth stopping for.
		panic("bootclock: read CLOCK_BOOTTIME: " + err.Error())
	}
	return d
}

func (bootTime) read() (time.Duration, error) {
	var ts unix.Timespec
	for {
		err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts)
		if err == nil {
			return time.Duration(ts.Nano()), nil
		}
		if err != unix.EINTR {
			return 0, err
		}
	}
}
