// Package faults makes trouble inside a process, for tests of how the rest
// bears it: a clock with the wrong rate, a disk that is slow or hangs. What is
// wrong at the moment stands in a file, which is read again and again, so that
// a test can change it while the process runs.
//
// Only binaries built with -tags chaos use it; the released one has none of it.
//
// Not promised: that a change is seen at once. The file is looked at when the
// clock is read or the disk is written, at most every 20 ms.
//
// The package starts no goroutine.
package faults

import (
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/bootclock"
)

// EnvVar names the file in the environment of a process.
const EnvVar = "LEASEHOLD_FAULTS"

// Announced is what a process that uses the file says on standard error.
const Announced = "built for tests, has the faults of"

// Settings are what is wrong. The zero value is nothing.
type Settings struct {
	ClockPPM  int           `json:"clock_ppm,omitempty"`     // how much too fast the clock runs, in millionths
	DiskDelay time.Duration `json:"disk_delay_ns,omitempty"` // added to each write of the log
	DiskHangs bool          `json:"disk_hangs,omitempty"`    // writes do not return until it is false again
}

// Write puts settings into a file, in one step, so that a reader sees the old
// or the new ones.
func Write(file string, s Settings) error {
	raw, err := json.Marshal(s)
	if err == nil {
		err = os.WriteFile(file+".new", raw, 0o600)
	}
	if err == nil {
		err = os.Rename(file+".new", file)
	}
	if err != nil {
		return fmt.Errorf("write faults: %w", err)
	}
	return nil
}

// lookEvery is how long an answer of the file is believed.
const lookEvery = 20 * time.Millisecond

// Source knows the settings. It may be used from any goroutine.
type Source struct {
	file string
	real bootclock.Clock

	mu     sync.Mutex
	looked time.Duration // when, on the real clock
	now    Settings
}

// Open reads the file, which must be there: a wrong name would be a test that
// tests nothing.
func Open(file string) (*Source, error) {
	s := &Source{file: file, real: bootclock.Boot()}
	settings, err := read(file)
	if err != nil {
		return nil, err
	}
	s.now, s.looked = settings, s.real.Now()
	return s, nil
}

func read(file string) (s Settings, err error) {
	raw, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(raw, &s)
	}
	if err != nil {
		return s, fmt.Errorf("read faults: %w", err)
	}
	return s, nil
}

// Now are the settings at present. A file that has gone changes nothing.
func (s *Source) Now() Settings {
	s.mu.Lock()
	defer s.mu.Unlock()
	if at := s.real.Now(); at-s.looked >= lookEvery {
		s.looked = at
		if settings, err := read(s.file); err == nil {
			s.now = settings
		}
	}
	return s.now
}
