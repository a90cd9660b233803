package bootclock

import (
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestClocksNeverGoBack(t *testing.T) {
	for name, c := range map[string]Clock{"boot": Boot(), "monotonic": Monotonic()} {
		t.Run(name, func(t *testing.T) {
			var wg sync.WaitGroup
			for range 4 {
				wg.Go(func() {
					last := c.Now()
					for range 20_000 {
						now := c.Now()
						if now < last {
							t.Errorf("clock went back: %v after %v", now, last)
							return
						}
						last = now
					}
				})
			}
			wg.Wait()
		})
	}
}

// Two values of Boot must agree, or a deadline taken with one would be wrong
// under the other.
func TestBootIsOneClock(t *testing.T) {
	if runtime.GOOS != "linux" {
		return
	}
	a, b := Boot(), Boot()
	before, mid, after := a.Now(), b.Now(), a.Now()
	if mid < before || mid > after {
		t.Fatalf("second clock reads %v between %v and %v of the first", mid, before, after)
	}
}

// /proc/uptime is written from the same clock, suspend included.
func TestBootCountsFromMachineStart(t *testing.T) {
	raw, err := os.ReadFile("/proc/uptime")
	if err != nil {
		if runtime.GOOS == "linux" && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		return
	}
	up, err := strconv.ParseFloat(strings.Fields(string(raw))[0], 64)
	if err != nil {
		t.Fatalf("parse /proc/uptime: %v", err)
	}
	// The file has hundredths of a second; a loaded machine may take its time
	// between the two readings.
	if got := Boot().Now().Seconds(); got < up-0.02 || got > up+60 {
		t.Fatalf("boot clock reads %.2f s, machine is up for %.2f s", got, up)
	}
}

func TestMonotonicFollowsTheBubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := Monotonic()
		if got := c.Now(); got != 0 {
			t.Fatalf("fresh clock reads %v, want 0", got)
		}
		<-time.After(3 * time.Hour)
		if got := c.Now(); got != 3*time.Hour {
			t.Fatalf("clock reads %v after three hours", got)
		}
	})
}

func BenchmarkBoot(b *testing.B) {
	c := Boot()
	for b.Loop() {
		c.Now()
	}
}
