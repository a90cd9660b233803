package bench

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/leasehold-dev/leasehold/cmd/leasehold/internal/cluster"
)

// fleet collects what the worker processes of a bench tell. Its methods may
// be called from any goroutine.
type fleet struct {
	bed *bed

	mu      sync.Mutex // guards what follows
	changed chan struct{}
	started int
	open    map[string]bool // worker id: its session is acknowledged
	left    map[string]bool
	failed  error
	running []owner                  // by partition: the newest
	starts  map[uint32][]start       // by partition: since handoffs looked last, and the one before
	logged  map[uint64]time.Duration // token: when its drain was proposed
	drained map[uint64]time.Duration // token: when its handler heard of the drain
}

// start is a handler that began.
type start struct {
	token uint64
	at    time.Duration
}

// owner is who ran a partition last.
type owner struct {
	process *cluster.Process
	token   uint64
	at      time.Duration // when its handler began
}

func newFleet(b *bed, partitions uint32) *fleet {
	return &fleet{
		bed: b, changed: make(chan struct{}), open: map[string]bool{}, left: map[string]bool{},
		running: make([]owner, partitions), drained: map[uint64]time.Duration{},
		starts: map[uint32][]start{}, logged: map[uint64]time.Duration{},
	}
}

// start starts a process with some workers.
func (f *fleet) start(cfg workerConfig) (*cluster.Process, error) {
	f.mu.Lock()
	f.started++
	name := fmt.Sprintf("workers-%d", f.started)
	f.mu.Unlock()
	cfg.Servers, cfg.Identity = f.bed.addrs, f.bed.cfg.Identity
	raw, err := json.Marshal(cfg)
	if err != nil {
		return nil, fmt.Errorf("encode configuration of workers: %w", err)
	}
	known := make(chan *cluster.Process, 1) // its lines may come before Start has returned
	var self *cluster.Process
	p, err := f.bed.group.Start(cluster.Spec{
		Name: name, Args: []string{WorkerCommand, string(raw)}, LogFile: filepath.Join(f.bed.dir, name+".log"),
		Line: func(line []byte) {
			if self == nil {
				self = <-known
			}
			f.hear(self, string(line))
		},
	})
	if err != nil {
		return nil, err
	}
	known <- p
	return p, nil
}

// hear takes in one line of a process.
func (f *fleet) hear(p *cluster.Process, line string) {
	word, arg, _ := strings.Cut(line, " ")
	f.mu.Lock()
	defer f.mu.Unlock()
	switch word {
	case tellOpen:
		f.open[arg] = true
	case tellLeft:
		f.left[arg] = true
	case tellFailed:
		f.failed = errors.Join(f.failed, errors.New(arg))
	case tellNotes:
		raw, err := base64.StdEncoding.DecodeString(arg)
		var notes []note
		if err == nil {
			notes, err = readNotes(raw)
		}
		if err != nil {
			f.failed = errors.Join(f.failed, fmt.Errorf("%s: %w", p.Name, err))
		}
		for _, n := range notes {
			f.takeLocked(p, n)
		}
	}
	close(f.changed)
	f.changed = make(chan struct{})
}

func (f *fleet) takeLocked(p *cluster.Process, n note) {
	switch n.Kind {
	case noteDraining:
		f.drained[n.Token] = n.At
	case noteRunning:
		f.starts[n.Partition] = append(f.starts[n.Partition], start{n.Token, n.At})
		if int(n.Partition) < len(f.running) && n.Token > f.running[n.Partition].token {
			f.running[n.Partition] = owner{process: p, token: n.Token, at: n.At}
		}
	}
}

// wait returns when cond holds, asked under the lock, or with the first
// failure of any worker.
func (f *fleet) wait(ctx context.Context, what string, cond func() bool) error {
	return f.waitFor(ctx, patience, what, cond)
}

func (f *fleet) waitFor(ctx context.Context, long time.Duration, what string, cond func() bool) error {
	ctx, cancel := context.WithTimeoutCause(ctx, long, fmt.Errorf("not within %v", long))
	defer cancel()
	for {
		f.mu.Lock()
		ok, failed, changed := cond(), f.failed, f.changed
		f.mu.Unlock()
		switch {
		case failed != nil:
			return failed
		case ok:
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait until %s: %w", what, context.Cause(ctx))
		case <-changed:
		}
	}
}

// waitOpen waits for the sessions of all these workers, longer the more they
// are: each has a connection and a proposal of its own.
func (f *fleet) waitOpen(ctx context.Context, ids []string) error {
	long := patience + time.Duration(len(ids))*20*time.Millisecond
	return f.waitFor(ctx, long, fmt.Sprintf("%d sessions are open", len(ids)), func() bool {
		return !slices.ContainsFunc(ids, func(id string) bool { return !f.open[id] })
	})
}

// waitOwned waits until a handler has run for every partition.
func (f *fleet) waitOwned(ctx context.Context) error {
	return f.wait(ctx, fmt.Sprintf("all %d partitions run", len(f.running)), func() bool {
		return !slices.ContainsFunc(f.running, func(o owner) bool { return o.token == 0 })
	})
}

// owners is a copy of who runs what.
func (f *fleet) owners() []owner {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.running)
}

// spread distributes ids w1…wn over some processes and starts them.
func (f *fleet) spread(ids []string, processes int, cfg workerConfig) ([]*cluster.Process, error) {
	var all []*cluster.Process
	for i := range processes {
		cfg.Workers = nil
		for k := i; k < len(ids); k += processes {
			cfg.Workers = append(cfg.Workers, ids[k])
		}
		p, err := f.start(cfg)
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	return all, nil
}

// ids are w1…wn of this run.
func (b *bed) ids(n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = b.id(i + 1)
	}
	return all
}

func (b *bed) id(n int) string { return fmt.Sprintf("w%d-%s", n, b.run) }
