package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/bootclock"
)

// AssignConfig sizes `bench assign`.
type AssignConfig struct {
	Workers    int           // sessions
	Processes  int           // that host them
	Partitions uint32        // of the keyspace that is created at 0
	Delay      time.Duration // its initial_delay: how long it waits for more workers
}

// AssignResult is how long it took.
type AssignResult struct {
	Bench      string  `json:"bench"`
	Workers    int     `json:"workers"`
	Partitions uint32  `json:"partitions"`
	Seconds    float64 `json:"seconds"`
}

// Assign measures the time from the call that creates a keyspace until every
// partition has been received, with its token, by the library of a worker. A
// guard that does not answer keeps the handlers from starting. The workers have their sessions before, on
// another keyspace, and join the new one as soon as it is there: that is
// inside the time, and so is the initial delay.
func Assign(ctx context.Context, cfg Config, a AssignConfig) (result AssignResult, err error) {
	b, err := lay(ctx, cfg)
	if err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	home, measured := b.name("home"), b.name("assign")
	if err := b.create(ctx, home, 1, sessionTTL, Takeover(true), 0); err != nil {
		return result, err
	}
	f := newFleet(b, a.Partitions)
	ids := b.ids(a.Workers)
	b.cfg.Progress("opening %d sessions", a.Workers)
	processes, err := f.spread(ids, a.Processes, workerConfig{Keyspace: home, Measured: measured, Received: true})
	if err != nil {
		return result, err
	}
	if err := f.waitOpen(ctx, ids); err != nil {
		return result, err
	}
	b.cfg.Progress("assigning %d partitions", a.Partitions)
	began := bootclock.Boot().Now()
	if err := b.create(ctx, measured, a.Partitions, sessionTTL, Takeover(true), a.Delay); err != nil {
		return result, err
	}
	for _, p := range processes {
		if err := p.Send(fmt.Sprintf("%s %s", sayRun, measured)); err != nil {
			return result, err
		}
	}
	if err := f.waitOwned(ctx); err != nil {
		return result, err
	}
	var last time.Duration
	tokens := map[uint64]bool{}
	for _, o := range f.owners() {
		last = max(last, o.at)
		tokens[o.token] = true
	}
	if len(tokens) != int(a.Partitions) {
		return result, fmt.Errorf("%d tokens for %d partitions: each must have its own", len(tokens), a.Partitions)
	}
	return AssignResult{Bench: "assign", Workers: a.Workers, Partitions: a.Partitions, Seconds: seconds(last - began)}, nil
}

// seconds to a thousandth.
func seconds(d time.Duration) float64 {
	return float64(d.Round(time.Millisecond)) / float64(time.Second)
}
