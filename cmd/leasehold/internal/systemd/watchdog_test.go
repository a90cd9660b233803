package systemd

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestWatchdogFromEnv(t *testing.T) {
	for _, c := range []struct {
		usec, pid string
		want      time.Duration // -1: an error
	}{
		{"", "", 0}, {"30000000", "", 30 * time.Second}, {"30000000", "77", 30 * time.Second}, {"30000000", "78", 0},
		{"0", "", -1}, {"-5", "", -1}, {"30s", "", -1}, {"99999999999999999999", "", -1}, {"9223372036854775807", "", -1},
	} {
		got, err := Watchdog(env("WATCHDOG_USEC", c.usec, "WATCHDOG_PID", c.pid), 77)
		if c.want < 0 && err == nil || c.want >= 0 && (err != nil || got != c.want) {
			t.Errorf("%+v: got %v, %v", c, got, err)
		}
	}
}

// fed runs Feed for a while and returns when it beat.
func fed(t *testing.T, timeout, length time.Duration, probe func(context.Context, time.Duration) error) (beats []time.Duration, failures int) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), length)
		defer cancel()
		Feed(ctx, timeout,
			func(ctx context.Context) error { return probe(ctx, time.Since(start)) },
			func() { beats = append(beats, time.Since(start)) },
			func(error) { failures++ })
	})
	return beats, failures
}

func TestWatchdogIsFedAtHalfOfItsTime(t *testing.T) {
	beats, failures := fed(t, 30*time.Second, 299*time.Second, func(context.Context, time.Duration) error { return nil })
	if len(beats) != 20 || failures != 0 {
		t.Fatalf("%d beats, %d failures in 5 minutes", len(beats), failures)
	}
	for i := 1; i < len(beats); i++ {
		if d := beats[i] - beats[i-1]; d != 15*time.Second {
			t.Errorf("beat %d after %v", i, d)
		}
	}
}

// A loop that hangs for ever is ended by the manager: no beat from then on.
func TestWatchdogStarvesWhileTheProbeHangs(t *testing.T) {
	const hangs = time.Minute
	beats, failures := fed(t, 30*time.Second, 5*time.Minute, func(ctx context.Context, at time.Duration) error {
		if at < hangs {
			return nil
		}
		<-ctx.Done()
		return context.Cause(ctx)
	})
	if len(beats) != 4 || beats[3] >= hangs || failures < 20 {
		t.Errorf("beats at %v, %d failures, want none after %v", beats, failures, hangs)
	}
}

// A probe that answers wrongly at once neither feeds nor spins.
func TestWatchdogStarvesWhileTheProbeFails(t *testing.T) {
	beats, failures := fed(t, 30*time.Second, 59*time.Second, func(context.Context, time.Duration) error { return errors.New("over") })
	if len(beats) != 0 || failures != 40 {
		t.Errorf("beats at %v, %d failures", beats, failures)
	}
}

// A stall of half the time is forgiven, wherever it begins.
func TestWatchdogForgivesAShortStall(t *testing.T) {
	for begin := time.Minute; begin < 2*time.Minute; begin += 500 * time.Millisecond {
		end := begin + 14*time.Second
		beats, _ := fed(t, 30*time.Second, 4*time.Minute, func(ctx context.Context, at time.Duration) error {
			if at < begin || at >= end {
				return nil
			}
			select {
			case <-time.After(end - at):
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		})
		for i := 1; i < len(beats); i++ {
			if d := beats[i] - beats[i-1]; d >= 30*time.Second {
				t.Errorf("stall at %v: no beat for %v", begin, d)
			}
		}
	}
}
