package bench

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"
)

// SessionsConfig sizes `bench sessions`.
type SessionsConfig struct {
	Sessions  int
	Processes int           // that host them
	For       time.Duration // how long is measured
}

// SessionsResult is what keeping sessions alive costs.
type SessionsResult struct {
	Bench    string `json:"bench"`
	Sessions int    `json:"sessions"`
	TTL      int64  `json:"ttl_ms"`
	// Seconds of processor time, of all servers together, per 1,000 sessions
	// and minute.
	Seconds float64 `json:"seconds"`
}

// Sessions measures the processor time of the servers while sessions, each
// with a connection of its own, do nothing but live.
func Sessions(ctx context.Context, cfg Config, s SessionsConfig) (result SessionsResult, err error) {
	if cfg.Servers != "" {
		return result, errors.New("measure sessions: the processor time of other servers is not known here, leave --server out")
	}
	b, err := lay(ctx, cfg)
	if err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	space := b.name("sessions")
	if err := b.create(ctx, space, 1, sessionTTL, Takeover(true), 0); err != nil {
		return result, err
	}
	f := newFleet(b, 1)
	ids := b.ids(s.Sessions)
	b.cfg.Progress("opening %d sessions", s.Sessions)
	if _, err := f.spread(ids, s.Processes, workerConfig{Keyspace: space, Measured: space}); err != nil {
		return result, err
	}
	if err := f.waitOpen(ctx, ids); err != nil {
		return result, err
	}
	// Let the opening die away, and every session come to its own rhythm.
	if err := rest(ctx, sessionTTL/2); err != nil {
		return result, err
	}
	b.cfg.Progress("measuring for %v", s.For)
	before, err := b.cpu()
	if err != nil {
		return result, err
	}
	began := time.Now()
	if err := rest(ctx, s.For); err != nil {
		return result, err
	}
	after, err := b.cpu()
	if err != nil {
		return result, err
	}
	if err := f.wait(ctx, "no worker has failed", func() bool { return true }); err != nil {
		return result, err
	}
	perMinute := (after - before).Seconds() / time.Since(began).Minutes() / (float64(s.Sessions) / 1000)
	return SessionsResult{Bench: "sessions", Sessions: s.Sessions, TTL: sessionTTL.Milliseconds(), Seconds: math.Round(perMinute*1000) / 1000}, nil
}

// cpu is the processor time of all servers so far.
func (b *bed) cpu() (time.Duration, error) {
	var sum time.Duration
	for _, s := range b.cluster.Servers() {
		used, err := s.Process().CPU()
		if err != nil {
			return 0, fmt.Errorf("measure sessions: %w", err)
		}
		sum += used
	}
	return sum, nil
}

func rest(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}
