package faults

import (
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
	"go.uber.org/goleak"

	"github.com/leasehold-dev/leasehold/ownership/bootclock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestClockRunsAtItsRateAndNeverBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ppm := 9_000
		real := bootclock.Monotonic()
		c := newClock(real, func() int { return ppm })
		want := real.Now()
		for _, step := range []struct {
			ppm  int
			took time.Duration
			more time.Duration // beyond 100 s
		}{{9_000, 100 * time.Second, 900 * time.Millisecond}, {-9_000, 100 * time.Second, -900 * time.Millisecond}, {0, 100 * time.Second, 0}} {
			ppm = step.ppm
			before := c.Now() // the rate changes here
			time.Sleep(step.took)
			if want += step.took + step.more; c.Now() != want {
				t.Errorf("at %d ppm the clock shows %v after %v, want %v", step.ppm, c.Now()-before, step.took, step.took+step.more)
			}
			if back := c.True(c.Now()); (back - real.Now()).Abs() > time.Microsecond {
				t.Errorf("at %d ppm: %v is taken for %v", step.ppm, real.Now(), back)
			}
		}
	})
}

// memory is a log that is only written.
type memory struct{ *raft.InmemStore }

func (memory) Close() error { return nil }

func TestDiskIsAsSlowAsItsSettings(t *testing.T) {
	file := filepath.Join(t.TempDir(), "faults")
	if _, err := Open(file); err == nil {
		t.Fatal("a missing file is taken for no faults")
	}
	write := func(s Settings) {
		t.Helper()
		if err := Write(file, s); err != nil {
			t.Fatal(err)
		}
	}
	write(Settings{})
	source, err := Open(file)
	if err != nil {
		t.Fatal(err)
	}
	log := source.Log(memory{raft.NewInmemStore()})
	write(Settings{DiskHangs: true})
	for !source.Now().DiskHangs {
		time.Sleep(lookEvery)
	}
	stored := make(chan error, 1)
	go func() { stored <- log.StoreLog(&raft.Log{Index: 1}) }()
	select {
	case <-stored:
		t.Fatal("a write returned from a hanging disk")
	case <-time.After(5 * lookEvery):
	}
	write(Settings{DiskDelay: 3 * lookEvery})
	if err := <-stored; err != nil {
		t.Fatal(err)
	}
	for source.Now().DiskDelay == 0 {
		time.Sleep(lookEvery)
	}
	began := time.Now()
	if err := log.SetUint64([]byte("term"), 2); err != nil || time.Since(began) < 3*lookEvery {
		t.Fatalf("a write took %v (%v), want at least %v", time.Since(began), err, 3*lookEvery)
	}
}
