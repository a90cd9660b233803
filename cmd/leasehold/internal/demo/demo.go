// Package demo is Leasehold's main job on real parts: three server processes
// and some worker processes of this same binary that relay a numbered stream
// of orders into a SQLite ledger, while workers join, leave, crash, are
// stopped past their TTL, the leader is killed, and everything is restarted.
//
// Promise: the verdict comes from the ledger and from what each worker process
// wrote to a file of its own, on the one clock that all of them share, never
// from the servers' table. It is computed by pure functions (Tenures,
// CountOverlaps, measure, judge) from what lies on disk when all is over, and
// it can fail: without the guard it must.
//
// Not promised: that nothing but the demo slows this machine down. A figure in
// milliseconds is that of this run, here.
//
// Held (Config.Hold), the cluster stays up after its verdict, with workers on a
// stream of their own (Standing) and files that Prometheus can be started on.
//
// Goroutines: the driver is one, one more follows the cluster's events, two
// serve each child process (package cluster). All end before Run returns. A
// worker process has one that reads its standard input, beside the library's.
package demo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Config of a run.
type Config struct {
	Modes      []Mode // in this order
	Partitions uint32 // at least Workers + 1, at most MaxPartitions
	Workers    int    // at the start, MinWorkers … MaxWorkers
	Seed       int64
	NoGuard    bool   // neither claim nor guard: must end in a damaged ledger
	Keep       bool   // leave ledger, evidence and logs
	Hold       bool   // after the story, keep the cluster up until ctx ends; with one mode
	NoStory    bool   // only hold
	Dir        string // where to work; empty: a new temporary directory
}

// Limits of what one machine can show.
const (
	MaxPartitions = 4096
	MaxWorkers    = 32
)

// Validate names every value that is out of its limits.
func (c Config) Validate() error {
	var errs []error
	if c.Workers < MinWorkers || c.Workers > MaxWorkers {
		errs = append(errs, fmt.Errorf("--workers %d: want %d to %d", c.Workers, MinWorkers, MaxWorkers))
	}
	if c.Partitions < uint32(max(c.Workers, 0))+1 || c.Partitions > MaxPartitions {
		errs = append(errs, fmt.Errorf("--partitions %d: want more than --workers, at most %d", c.Partitions, MaxPartitions))
	}
	if len(c.Modes) == 0 {
		errs = append(errs, errors.New("no mode: want fenced, strict or both"))
	}
	switch {
	case c.Hold && len(c.Modes) > 1:
		errs = append(errs, errors.New("--hold keeps one cluster: want --fenced or --strict, not both"))
	case c.Hold && c.NoGuard:
		errs = append(errs, errors.New("--hold keeps a ledger that is guarded: not with --no-guard"))
	case c.NoStory && !c.Hold:
		errs = append(errs, errors.New("--no-story leaves nothing to do: only with --hold"))
	}
	return errors.Join(errs...)
}

// Run runs the modes one after the other. An error says that there is no
// verdict; a verdict that does not hold is in the result. What is left of a
// run that failed either way is kept, and the story says where.
func Run(ctx context.Context, cfg Config, story *Timeline) (Result, error) {
	if err := cfg.Validate(); err != nil {
		return Result{}, err
	}
	dir, err := os.MkdirTemp(cfg.Dir, "leasehold-demo-")
	if err != nil {
		return Result{}, fmt.Errorf("create directory: %w", err)
	}
	result := Result{OK: true}
	for _, mode := range cfg.Modes {
		guard := "behind the guard"
		if cfg.NoGuard {
			guard = "without a guard"
		}
		story.Chapter("%s takeover, %s, seed %d", strings.ToUpper(string(mode)), guard, cfg.Seed)
		var r ModeResult
		if r, err = runMode(ctx, cfg, mode, filepath.Join(dir, string(mode)), story); err != nil {
			result.OK = false
			err = fmt.Errorf("demo, %s: %w", mode, err)
			break
		}
		if cfg.NoStory {
			break
		}
		result.OK = result.OK && r.ok()
		result.Modes = append(result.Modes, r)
	}
	interrupted := ctx.Err() != nil && err != nil
	if cfg.Keep || !result.OK && !cfg.NoGuard && !interrupted {
		story.Note("ledger, evidence and logs are in %s", dir)
		return result, err
	}
	if rerr := os.RemoveAll(dir); rerr != nil {
		err = errors.Join(err, fmt.Errorf("remove directory: %w", rerr))
	}
	return result, err
}
