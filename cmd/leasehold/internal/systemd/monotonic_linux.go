package systemd

import (
	"time"

	"golang.org/x/sys/unix"
)

// monotonic is the clock by which systemd orders reloads.
func monotonic() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		return 0 // does not happen; systemd then falls back to READY alone
	}
	return time.Duration(ts.Nano())
}
