package main

import (
	"errors"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/fence"
)

var everything = share{math.MinInt64, math.MaxInt64}

// clocked is a runner in a database whose clock the test sets.
type clocked struct {
	*runner
	t     *testing.T
	stamp fence.Stamp
}

func newClocked(t *testing.T) *clocked {
	t.Helper()
	s := opened(t, database(t))
	if err := s.create(t.Context(), schema); err != nil {
		t.Fatal(err)
	}
	quiet := slog.New(slog.DiscardHandler)
	return &clocked{&runner{store: s, grace: time.Second, keep: time.Hour, log: quiet}, t, fence.Stamp{Keyspace: "cron", Token: 7, Owner: "a"}}
}

func (c *clocked) exec(query string) {
	c.t.Helper()
	if _, err := c.store.db.ExecContext(c.t.Context(), query); err != nil {
		c.t.Fatal(err)
	}
}

func (c *clocked) add(name, schedule, zone, missed, target string) {
	c.t.Helper()
	if err := c.store.add(c.t.Context(), job{name: name, schedule: schedule, zone: zone, target: target, policy: policy{missed: missed, max: 100}}); err != nil {
		c.t.Fatal(err)
	}
}

// at sets the database's clock and decides.
func (c *clocked) at(when string) int {
	c.t.Helper()
	c.exec(`CREATE OR REPLACE FUNCTION cron_now() RETURNS TIMESTAMPTZ LANGUAGE sql AS $$SELECT '` + when + `'::timestamptz$$`)
	n, err := c.decide(c.t.Context(), c.stamp, everything)
	if err != nil {
		c.t.Fatal(err)
	}
	return n
}

func (c *clocked) ticks(job string) string {
	c.t.Helper()
	rows, err := c.store.db.QueryContext(c.t.Context(), `SELECT tick FROM cron_tick WHERE job = $1 ORDER BY tick`, job)
	if err != nil {
		c.t.Fatal(err)
	}
	defer rows.Close()
	var ticks []time.Time
	for rows.Next() {
		var at time.Time
		if err := rows.Scan(&at); err != nil {
			c.t.Fatal(err)
		}
		ticks = append(ticks, at)
	}
	return stamps(ticks, "02T15:04")
}

// O-76: what is due is decided by the database's clock, years away from this
// machine's; here over the night in which an hour comes twice.
func TestDatabaseClockDecides(t *testing.T) {
	c := newClocked(t)
	c.add("berlin", "30 2 * * *", "Europe/Berlin", missedAll, "http://x")
	c.add("hourly", "0 * * * *", "UTC", missedSkip, "http://x")
	if n := c.at("2030-10-26T20:00:30Z"); n != 0 {
		t.Errorf("new jobs had %d ticks", n)
	}
	for _, when := range []string{"2030-10-27T00:29:59Z", "2030-10-27T00:30:00Z", "2030-10-27T01:30:00Z", "2030-10-27T02:00:00.5Z", "2030-10-28T01:30:01Z"} {
		c.at(when)
	}
	if got, want := c.ticks("berlin"), "27T00:30 28T01:30"; got != want {
		t.Errorf("berlin: %s, want %s", got, want)
	}
	if got, want := c.ticks("hourly"), "27T02:00"; got != want { // the only one that was decided in time
		t.Errorf("hourly: %s, want %s", got, want)
	}
	if wait, err := c.store.wait(t.Context(), everything); err != nil || wait != 29*time.Minute+59*time.Second {
		t.Errorf("the next tick is in %v, %v", wait, err)
	}
}

// Whatever happens to the note of what is next, a tick that was decided is not
// decided again: here the table of jobs is restored from an old backup.
func TestTickIsDecidedOnce(t *testing.T) {
	c := newClocked(t)
	c.add("j", "* * * * *", "UTC", missedAll, "http://x")
	c.at("2026-01-01T00:00:30Z")
	if n := c.at("2026-01-01T00:03:10Z"); n != 3 {
		t.Fatalf("%d ticks decided, want 3", n)
	}
	c.exec(`UPDATE cron_job SET next_tick = '2026-01-01T00:01:00Z'`)
	if n := c.at("2026-01-01T00:04:10Z"); n != 1 {
		t.Errorf("%d ticks decided after the restore, want 1", n)
	}
	if got, want := c.ticks("j"), "01T00:01 01T00:02 01T00:03 01T00:04"; got != want {
		t.Errorf("ticks %s, want %s", got, want)
	}
}

// O-13: a worker that was paused and replaced decides and notes nothing.
func TestZombieDecidesNothing(t *testing.T) {
	c := newClocked(t)
	c.add("j", "* * * * *", "UTC", missedAll, "http://x")
	c.at("2026-01-01T00:00:30Z")
	if err := c.store.fence.Claim(t.Context(), []fence.Stamp{{Keyspace: "cron", Token: 8, Owner: "b"}}); err != nil {
		t.Fatal(err)
	}
	c.exec(`CREATE OR REPLACE FUNCTION cron_now() RETURNS TIMESTAMPTZ LANGUAGE sql AS $$SELECT '2026-01-01T00:05:00Z'::timestamptz$$`)
	if _, err := c.decide(t.Context(), c.stamp, everything); !errors.Is(err, fence.ErrStale) {
		t.Errorf("the zombie decided: %v", err)
	}
	if got := c.ticks("j"); got != "" {
		t.Errorf("ticks %s", got)
	}
}

// A worker dies after the post and before the note; its successor posts the
// tick again and the target knows it.
func TestPostedTwiceFiredOnce(t *testing.T) {
	c := newClocked(t)
	tg, err := newTarget(t.Context(), c.store, c.log)
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(tg)
	defer srv.Close()
	c.client = srv.Client()
	c.add("good", "* * * * *", "UTC", missedAll, srv.URL)
	c.add("nobody-home", "* * * * *", "UTC", missedAll, "http://127.0.0.1:1/")
	c.at("2026-01-01T00:00:30Z")
	c.at("2026-01-01T00:02:30Z")
	for range 3 {
		_, err := c.dispatch(t.Context(), c.stamp, everything)
		if err == nil || !strings.Contains(err.Error(), "fire nobody-home@2026-01-01T00:01:00Z") || strings.Contains(err.Error(), "good") {
			t.Errorf("dispatch: %v, want an error about nobody-home alone", err)
		}
		c.exec(`UPDATE cron_tick SET state = 'due' WHERE tick = '2026-01-01T00:01:00Z'`) // the note was lost
	}
	c.exec(`DELETE FROM cron_job WHERE name = 'nobody-home'`)
	for more := true; more; {
		if more, err = c.dispatch(t.Context(), c.stamp, everything); err != nil {
			t.Fatal(err)
		}
	}
	var fired string
	err = c.store.db.QueryRowContext(t.Context(), `SELECT string_agg(to_char(tick AT TIME ZONE 'UTC', 'MI'), ' ' ORDER BY position) FROM fired`).Scan(&fired)
	if err != nil || fired != "01 02" {
		t.Errorf("fired %q, %v, want 01 02", fired, err)
	}
	resp, err := srv.Client().Post(srv.URL, "application/json", strings.NewReader(`{"job":"x"}`))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusUnprocessableEntity {
		t.Errorf("without a key: %s", resp.Status)
	}
}

// A row that somebody has written by hand stops nobody else.
func TestBrokenJobStopsNobody(t *testing.T) {
	c := newClocked(t)
	c.add("a", "* * * * *", "UTC", missedAll, "http://x")
	c.add("b", "* * * * *", "UTC", missedAll, "http://x")
	c.exec(`UPDATE cron_job SET schedule = 'now and then' WHERE name = 'a'`)
	c.at("2026-01-01T00:00:30Z")
	c.at("2026-01-01T00:01:30Z")
	if got := c.ticks("b"); got != "01T00:01" {
		t.Errorf("ticks of b: %q", got)
	}
	if got := c.ticks("a"); got != "" {
		t.Errorf("ticks of a: %q", got)
	}
	for _, j := range []job{
		{name: "", schedule: "* * * * *", zone: "UTC", policy: policy{missed: "all", max: 1}},
		{name: "x", schedule: "* *", zone: "UTC", policy: policy{missed: "all", max: 1}},
		{name: "x", schedule: "* * * * *", zone: "UTC", policy: policy{missed: "some", max: 1}},
		{name: "x", schedule: "* * * * *", zone: "UTC", policy: policy{missed: "all", max: 0}},
	} {
		if err := c.store.add(t.Context(), j); err == nil {
			t.Errorf("%+v was added", j)
		}
	}
}
