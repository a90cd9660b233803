package main

import (
	"fmt"
	"strings"
	"time"
)

// durationFlag is a flag for a time span. A number without a unit is refused
// rather than guessed at: elsewhere 600 has meant 600 ns.
type durationFlag struct {
	d   time.Duration
	max time.Duration // 0: none
}

// String implements pflag.Value.
func (f *durationFlag) String() string { return shortDuration(f.d) }

// Type implements pflag.Value.
func (*durationFlag) Type() string { return "duration" }

// Set implements pflag.Value.
func (f *durationFlag) Set(s string) error {
	d, err := parseDuration(s)
	if err != nil {
		return err
	}
	if f.max > 0 && d > f.max {
		return fmt.Errorf("%q is above the limit of %s", s, shortDuration(f.max))
	}
	f.d = d
	return nil
}

// ms is the value as the API wants it.
func (f *durationFlag) ms() int64 { return f.d.Milliseconds() }

// parseDuration reads a span of 0 or more with a unit, in whole milliseconds.
func parseDuration(s string) (time.Duration, error) {
	const example = "want a number with a unit, for example 1500ms, 10s or 5m"
	if s == "" {
		return 0, fmt.Errorf("a duration is empty, %s", example)
	}
	if last := s[len(s)-1]; last >= '0' && last <= '9' || last == '.' {
		return 0, fmt.Errorf("%q ends without a unit, %s", s, example)
	}
	d, err := time.ParseDuration(s)
	switch {
	case err != nil:
		return 0, fmt.Errorf("%q is not a duration, %s", s, example)
	case d < 0:
		return 0, fmt.Errorf("%q is below 0, %s", s, example)
	case d%time.Millisecond != 0:
		return 0, fmt.Errorf("%q is finer than a millisecond, %s", s, example)
	}
	return d, nil
}

// shortDuration writes a span as people do: 10s, 1m30s, 1h, 250ms.
func shortDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// msText writes a span that the API gave in milliseconds.
func msText(ms int64) string { return shortDuration(time.Duration(ms) * time.Millisecond) }

// ageText is for spans that are read, not computed with: three digits or so.
func ageText(ms int64) string {
	d := time.Duration(ms) * time.Millisecond
	switch {
	case d < 10*time.Second:
		return shortDuration(d.Round(10 * time.Millisecond))
	case d < time.Hour:
		return shortDuration(d.Round(time.Second))
	}
	return shortDuration(d.Round(time.Minute))
}
