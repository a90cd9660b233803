package main

import (
	"strings"
	"testing"
	"time"
)

func instant(t *testing.T, s string) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339, s)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

func stamps(ticks []time.Time, layout string) string {
	out := make([]string, len(ticks))
	for i, t := range ticks {
		out[i] = t.UTC().Format(layout)
	}
	return strings.Join(out, " ")
}

// The night in which an hour is left out, and the one in which it comes twice.
func TestClocksAreSetForwardAndBack(t *testing.T) {
	for _, c := range []struct{ schedule, zone, from, until, want string }{
		{"30 2 * * *", "Europe/Berlin", "2026-03-28T00:00:00Z", "2026-03-31T00:00:00Z", "28T01:30 30T00:30"}, // none on the 29th
		{"30 2 * * *", "Europe/Berlin", "2026-10-24T00:00:00Z", "2026-10-27T00:00:00Z", "24T00:30 25T00:30 26T01:30"},
		{"*/30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z", "2026-10-25T12:00:00Z", "25T00:00 25T00:30"},
		{"30 * * * *", "Europe/Berlin", "2026-03-29T00:00:00Z", "2026-03-29T03:00:00Z", "29T00:30 29T01:30 29T02:30"},
		{"30 * * * *", "Europe/Berlin", "2026-10-25T00:00:00Z", "2026-10-25T03:00:00Z", "25T00:30 25T01:30 25T02:30"},
		{"30 1 * * *", "America/New_York", "2026-11-01T00:00:00Z", "2026-11-03T00:00:00Z", "01T05:30 02T06:30"},
		{"45 1 * * *", "Australia/Lord_Howe", "2026-04-03T00:00:00Z", "2026-04-06T00:00:00Z", "03T14:45 04T14:45 05T15:15"}, // half an hour, on the 5th local
		{"30 2 * * *", "UTC", "2026-10-24T00:00:00Z", "2026-10-27T00:00:00Z", "24T02:30 25T02:30 26T02:30"},
	} {
		s, err := parse(c.schedule, c.zone)
		if err != nil {
			t.Fatal(err)
		}
		ticks := last(s, instant(t, c.from), instant(t, c.until), 100)
		if got := stamps(ticks, "02T15:04"); got != c.want {
			t.Errorf("%s in %s: %s, want %s", c.schedule, c.zone, got, c.want)
		}
	}
}

func TestMissedTicks(t *testing.T) {
	s, err := parse("*/10 * * * * *", "UTC")
	if err != nil {
		t.Fatal(err)
	}
	next := instant(t, "2026-01-01T00:00:00Z")
	for _, c := range []struct {
		missed    string
		max, late int // seconds after next
		want      string
	}{
		{"all", 100, 0, "00:00"},
		{"all", 100, 35, "00:00 00:10 00:20 00:30"},
		{"all", 2, 35, "00:20 00:30"},
		{"once", 100, 9, "00:00"},
		{"once", 100, 35, "00:30"},
		{"skip", 100, 2, "00:00"},
		{"skip", 100, 9, ""}, // grace is 3 s
		{"skip", 100, 31, "00:30"},
		{"all", 3, 365 * 24 * 3600, "59:40 59:50 00:00"}, // a year, in no time
		{"once", 1, 365 * 24 * 3600, "00:00"},
		{"skip", 1, 365*24*3600 + 5, ""},
	} {
		p := policy{missed: c.missed, max: c.max, grace: 3 * time.Second}
		if got := stamps(p.due(s, next, next.Add(time.Duration(c.late)*time.Second)), "04:05"); got != c.want {
			t.Errorf("%s, at most %d, %d s late: %q, want %q", c.missed, c.max, c.late, got, c.want)
		}
	}
}

func TestBadSchedules(t *testing.T) {
	for _, c := range []struct{ schedule, zone, want string }{
		{"", "UTC", "found 0"},
		{"* * *", "UTC", "expected"},
		{"61 * * * *", "UTC", "above maximum"},
		{"@every 5s", "UTC", "write */n"},
		{"0 0 30 2 *", "UTC", "never happens"},
		{"* * * * *", "Mars/Olympus", `zone "Mars/Olympus"`},
		{"* * * * *", "", `zone ""`},
		{"* * * * *", "Local", `zone "Local"`}, // differs between workers
		{"TZ=Asia/Tokyo * * * * *", "UTC", "parse"},
	} {
		if _, err := parse(c.schedule, c.zone); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q in %q: %v, want %q", c.schedule, c.zone, err, c.want)
		}
	}
}
