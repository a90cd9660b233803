package router

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	pb "github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
)

func TestEndpointThatTheGrantDoesNotTell(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := twoWorkers(t, 1)
		f.noEndpoints = true
		r := f.router(Config{})
		ready(t, r)
		f.do(func() { f.openLocked(3, "w3", "10.0.1.3:9000"); f.openLocked(4, "w4", "") })
		f.do(func() { f.moveLocked("orders", 0, 3); f.moveLocked("orders", 1, 3); f.moveLocked("orders", 2, 4) })
		within(t, 5*time.Second, "the router agrees", func() bool { return f.agrees(r, "orders") == nil })
		time.Sleep(time.Minute)
		if n := f.count("workers"); n == 0 || n > 2 {
			t.Errorf("workers listed %d times", n)
		}
	})
}

// A wrong hint is believed for seconds, not for ever.
func TestAWrongHintDoesNotLast(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := twoWorkers(t, 1)
		r := f.router(Config{})
		ready(t, r)
		if !r.Correct("orders", 0, Hint{Owner: "liar", Endpoint: "10.6.6.6:1", Token: f.token + 5}) {
			t.Fatal("a hint with a higher token was refused")
		}
		if at, _ := r.At("orders", 0); at.Owner != "liar" {
			t.Errorf("route %+v", at)
		}
		within(t, 5*time.Second, "the router agrees", func() bool { return f.agrees(r, "orders") == nil })
	})
}

// A right hint is ahead of the events, which then confirm it: nobody is asked.
func TestARightHintIsConfirmedByItsEvent(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := twoWorkers(t, 1)
		r := f.router(Config{})
		ready(t, r)
		token := f.token + 1
		if !r.Correct("orders", 0, Hint{Owner: "w2", Endpoint: "10.0.1.2:9000", Token: token}) {
			t.Fatal("refused")
		}
		f.do(func() { f.moveLocked("orders", 0, 2) })
		mustAgree(t, f, r)
		f.do(func() { f.index++; f.endLocked("expire", "orders", 0, "expired") })
		mustAgree(t, f, r)
		time.Sleep(time.Minute)
		if n := f.count("partition"); n != 0 {
			t.Errorf("asked %d times", n)
		}
		// Its older brother, late, is no news.
		if r.Correct("orders", 0, Hint{Owner: "w2", Endpoint: "10.0.1.2:9000", Token: token}) {
			t.Error("a hint about an ended lease was accepted")
		}
	})
}

func TestRefreshSharesOneQuestion(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := twoWorkers(t, 1)
		f.mangle = func([]*pb.Event) []*pb.Event { return nil } // no event arrives
		r := f.router(Config{})
		ready(t, r)
		f.do(func() { f.moveLocked("orders", 0, 2) })
		synctest.Wait()
		if at, _ := r.At("orders", 0); at.Owner != "w1" {
			t.Fatalf("route %+v: the test's events are not lost", at)
		}
		errs := make(chan error, 20)
		f.hold = make(chan struct{})
		for range cap(errs) {
			go func() {
				at, err := r.Refresh(context.Background(), "orders", 0)
				if err == nil && at.Owner != "w2" {
					err = fmt.Errorf("route %+v", at)
				}
				errs <- err
			}()
		}
		synctest.Wait() // all have asked
		close(f.hold)
		for range cap(errs) {
			if err := <-errs; err != nil {
				t.Error(err)
			}
		}
		if n := f.count("partition"); n != 1 {
			t.Errorf("asked %d times", n)
		}
	})
}

func TestOnChangeTellsWhatTheTableShows(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := twoWorkers(t, 1)
		told := make(chan Route, 100)
		r := f.router(Config{OnChange: func(at Route) { told <- at }})
		ready(t, r)
		for range 8 {
			<-told // the first list
		}
		f.do(func() { f.moveLocked("orders", 5, 1) })
		if at := <-told; at.Partition != 5 || at.Owner != "w1" || at.Endpoint != "10.0.1.1:9000" || at.Token != f.token {
			t.Errorf("told %+v", at)
		}
		f.do(func() { f.removeLocked("orders") })
		for range 8 {
			if at := <-told; at.Owner != "" {
				t.Errorf("told %+v of a keyspace that is gone", at)
			}
		}
	})
}

// Whoever never gets through says what kept it.
func TestNotReadySaysWhy(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFake(t, 1)
		f.do(func() { f.cluster = "" })
		r := f.router(Config{})
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if err := r.WaitReady(ctx); !errors.Is(err, ErrNotReady) || !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "formed") {
			t.Errorf("got %v", err)
		}
		if err := r.Run(t.Context()); err == nil {
			t.Error("Run ran twice")
		}
	})
}

func TestBadConfigIsRefused(t *testing.T) {
	ok := Config{Servers: "10.0.0.1:7400", Keyspaces: []string{"orders"}}
	if _, err := New(ok); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		change func(*Config)
		want   string
	}{
		{"no server", func(c *Config) { c.Servers = "" }, "servers"},
		{"a URL", func(c *Config) { c.Servers = "http://x" }, "URL"},
		{"no keyspace", func(c *Config) { c.Keyspaces = nil }, "Keyspaces"},
		{"too many", func(c *Config) { c.Keyspaces = make([]string, 65) }, "64"},
		{"empty name", func(c *Config) { c.Keyspaces = []string{""} }, "Keyspaces"},
		{"twice", func(c *Config) { c.Keyspaces = []string{"a", "a"} }, "once"},
		{"long name", func(c *Config) { c.Keyspaces = []string{strings.Repeat("x", 1<<20)} }, "255"},
		{"heartbeat", func(c *Config) { c.Heartbeat = time.Millisecond }, "Heartbeat"},
		{"stale", func(c *Config) { c.StaleAfter = time.Second }, "StaleAfter"},
	} {
		cfg := ok
		c.change(&cfg)
		if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), c.want) || len(err.Error()) > 4000 {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}
