package cluster

import (
	"errors"
	"fmt"
	"os"
	"sync"
)

// Group owns the processes it has started: when Close returns, all of them
// have ended. Methods may be called from any goroutine.
type Group struct {
	executable string

	mu       sync.Mutex
	children map[*Process]struct{}
	closed   bool
}

// NewGroup returns a group that starts this same binary.
func NewGroup() (*Group, error) {
	path, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find own executable: %w", err)
	}
	return NewGroupOf(path), nil
}

// NewGroupOf returns a group that starts another binary of Leasehold.
func NewGroupOf(executable string) *Group {
	return &Group{executable: executable, children: map[*Process]struct{}{}}
}

// Start starts a process. After Close it is refused.
func (g *Group) Start(spec Spec) (*Process, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return nil, fmt.Errorf("start %s: group is closed", spec.Name)
	}
	p, err := startProcess(g.executable, spec)
	if err != nil {
		return nil, err
	}
	g.children[p] = struct{}{}
	go func() {
		<-p.done
		g.mu.Lock()
		delete(g.children, p)
		g.mu.Unlock()
	}()
	return p, nil
}

// Close kills what still runs, each process by its own id, and waits until
// every one has ended. SIGKILL also ends a stopped process.
func (g *Group) Close() error {
	g.mu.Lock()
	g.closed = true
	var left []*Process
	for p := range g.children {
		left = append(left, p)
	}
	g.mu.Unlock()
	var errs []error
	for _, p := range left {
		if err := p.Signal(os.Kill); err != nil && !errors.Is(err, os.ErrProcessDone) {
			errs = append(errs, err)
			continue
		}
		<-p.done
	}
	return errors.Join(errs...)
}
