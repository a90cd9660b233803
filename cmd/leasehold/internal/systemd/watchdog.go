package systemd

import (
	"context"
	"fmt"
	"strconv"
	"time"
)

// Watchdog returns after how long without a sign of life the manager ends the
// process with the given id, or 0 when it does not watch it.
func Watchdog(getenv func(string) string, pid int) (time.Duration, error) {
	usec, whose := getenv("WATCHDOG_USEC"), getenv("WATCHDOG_PID")
	if usec == "" || whose != "" && whose != strconv.Itoa(pid) {
		return 0, nil
	}
	n, err := strconv.ParseInt(usec, 10, 64)
	if err != nil || n <= 0 || n > int64(1<<63-1)/int64(time.Microsecond) {
		return 0, fmt.Errorf("WATCHDOG_USEC %q: want microseconds, more than 0", usec)
	}
	return time.Duration(n) * time.Microsecond, nil
}

// Feed calls beat at half of timeout while probe succeeds, until ctx ends. A
// probe that fails or does not return in time is told to failed and repeated;
// until one succeeds there is no beat. What it probes may so stand still for
// half of timeout at most.
func Feed(ctx context.Context, timeout time.Duration, probe func(context.Context) error, beat func(), failed func(error)) {
	for {
		wait := timeout / 2
		look, cancel := context.WithTimeout(ctx, timeout/4)
		err := probe(look)
		cancel()
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			failed(err)
			wait = timeout / 20 // soon again, there is little time
		default:
			beat()
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}
