package main

import (
	"errors"
	"fmt"
	"slices"
	"time"
	_ "time/tzdata" // zones are there on machines without the database, too

	"github.com/robfig/cron/v3"
)

// What happens to ticks that nobody was there to fire in time.
const (
	missedSkip = "skip" // they never fire
	missedOnce = "once" // the last of them fires
	missedAll  = "all"  // all fire, in order, but only the last max_missed
)

var parser = cron.NewParser(cron.SecondOptional | cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.Descriptor)

// daily is a schedule whose hours are given. Where clocks are set back, the
// parser's own answer has such a tick in both of the hours with one name; this
// one has it in the first. A tick in the hour that is left out when clocks are
// set forward does not happen that day.
type daily struct{ *cron.SpecSchedule }

// Next implements cron.Schedule.
func (d daily) Next(t time.Time) time.Time {
	for t = d.SpecSchedule.Next(t); !t.IsZero() && repeats(t.In(d.Location)); {
		t = d.SpecSchedule.Next(t)
	}
	return t
}

// repeats reports whether the wall clock has shown the time of t before.
func repeats(t time.Time) bool {
	start, _ := t.ZoneBounds()
	if start.IsZero() {
		return false
	}
	_, before := start.Add(-time.Nanosecond).Zone()
	_, now := t.Zone()
	return t.Sub(start) < time.Duration(before-now)*time.Second
}

// everyHour is the parser's mark for an hour of "*".
const everyHour = 1 << 63

// parse reads a schedule in a zone.
func parse(schedule, zone string) (cron.Schedule, error) {
	if _, err := time.LoadLocation(zone); err != nil || zone == "" || zone == "Local" {
		return nil, fmt.Errorf("zone %q: want a name such as UTC or Europe/Berlin", zone)
	}
	s, err := parser.Parse("CRON_TZ=" + zone + " " + schedule)
	if err != nil {
		return nil, fmt.Errorf("schedule %q: %w", schedule, err)
	}
	spec, ok := s.(*cron.SpecSchedule)
	switch {
	case !ok:
		return nil, fmt.Errorf("schedule %q: @every counts from when it was started, which no two workers agree on: write */n", schedule)
	case s.Next(time.Now()).IsZero():
		return nil, fmt.Errorf("schedule %q: never happens", schedule)
	case spec.Hour&everyHour != 0:
		return spec, nil
	}
	return daily{spec}, nil
}

// policy says which ticks of a backlog fire.
type policy struct {
	missed string
	max    int           // of missedAll
	grace  time.Duration // how late a tick of missedSkip may be
}

// due returns the ticks from next to now that fire, in order. next is a tick.
func (p policy) due(s cron.Schedule, next, now time.Time) []time.Time {
	from := next.Add(-time.Nanosecond)
	switch p.missed {
	case missedOnce:
		return last(s, from, now, 1)
	case missedSkip:
		if g := now.Add(-p.grace); g.After(from) {
			from = g
		}
	}
	return last(s, from, now, p.max)
}

// last returns the last n ticks after from, up to now. It looks backwards from
// now in growing steps, so a backlog of a year costs no more than n ticks.
func last(s cron.Schedule, from, now time.Time, n int) []time.Time {
	for window := time.Minute; ; window *= 4 {
		start := now.Add(-window)
		if start.Before(from) {
			start = from
		}
		var ticks []time.Time
		for t := s.Next(start); !t.IsZero() && !t.After(now); t = s.Next(t) {
			ticks = append(ticks, t)
		}
		if len(ticks) >= n || start.Equal(from) {
			return slices.Clone(ticks[max(0, len(ticks)-n):])
		}
	}
}

// validate says what is wrong with a policy.
func (p policy) validate() error {
	if !slices.Contains([]string{missedSkip, missedOnce, missedAll}, p.missed) {
		return fmt.Errorf("missed %q: want skip, once or all", p.missed)
	}
	if p.max < 1 || p.max > 10_000 {
		return errors.New("max missed: want 1 to 10000")
	}
	return nil
}
