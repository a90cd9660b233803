package grpcfence_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/leasehold-dev/leasehold/ownership/fence"
	"github.com/leasehold-dev/leasehold/ownership/fence/fencetest"
	"github.com/leasehold-dev/leasehold/ownership/fence/grpcfence"
)

// service is a journal behind gRPC; it is shared by all trials, which have a
// keyspace each. A write is a call whose handler has been let in and waits for
// the trial to go on.
type service struct {
	conn *grpc.ClientConn

	mu      sync.Mutex // guards the rest
	waiting map[string]*call
	journal map[string][]fence.Stamp
}

type call struct {
	entered, finish chan struct{}
	cancel          context.CancelFunc
	result          chan error
}

func newService(t *testing.T, gate *fence.Gate) *service {
	v := &service{waiting: map[string]*call{}, journal: map[string][]fence.Stamp{}}
	_, v.conn = serve(t, gate, &journal{write: v.write})
	return v
}

func (v *service) write(ctx context.Context, id string) error {
	md, _ := metadata.FromIncomingContext(ctx)
	s, err := grpcfence.ParseStamp(md)
	if err != nil || id == "" { // "": a claim
		return err
	}
	v.mu.Lock()
	c := v.waiting[id]
	v.mu.Unlock()
	close(c.entered)
	select {
	case <-c.finish:
	case <-ctx.Done():
		return ctx.Err()
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.journal[s.Keyspace] = append(v.journal[s.Keyspace], s)
	return nil
}

type trial struct {
	v       *service
	name    string
	guarded bool
}

func (r trial) own(s fence.Stamp) fence.Stamp { s.Keyspace = r.name; return s }

// Claim implements fencetest.Resource.
func (r trial) Claim(ctx context.Context, stamps []fence.Stamp) error {
	if !r.guarded {
		return nil
	}
	return grpcfence.Guard(func(ctx context.Context) error { return write(ctx, r.v.conn, "") }).Claim(ctx, []fence.Stamp{r.own(stamps[0])})
}

// Begin implements fencetest.Resource.
func (r trial) Begin(ctx context.Context, s fence.Stamp) (fencetest.Write, error) {
	c := &call{entered: make(chan struct{}), finish: make(chan struct{}), result: make(chan error, 1)}
	r.v.mu.Lock()
	id := fmt.Sprint(len(r.v.waiting) + 1)
	r.v.waiting[id] = c
	r.v.mu.Unlock()
	ctx, c.cancel = context.WithCancel(fence.NewContext(ctx, r.own(s), 0))
	go func() { c.result <- write(ctx, r.v.conn, id) }()
	select {
	case <-c.entered:
		return c, nil
	case err := <-c.result:
		c.cancel()
		if err == nil {
			err = errors.New("accepted without its handler")
		}
		return nil, err
	}
}

func (c *call) Commit(context.Context) error {
	defer c.cancel()
	close(c.finish)
	return <-c.result
}

func (c *call) Crash() {
	c.cancel()
	<-c.result
}

// Accepted implements fencetest.Resource.
func (r trial) Accepted(context.Context) ([]fence.Stamp, error) {
	r.v.mu.Lock()
	defer r.v.mu.Unlock()
	out := append([]fence.Stamp(nil), r.v.journal[r.name]...)
	for i := range out {
		out[i].Keyspace = "trial"
	}
	return out, nil
}

func TestTrials(t *testing.T) {
	v := newService(t, fence.NewGate(fence.NewMemory(nil), nil))
	report := fencetest.Run(t, fencetest.Options{Parallel: 4}, func(n int) (fencetest.Resource, error) {
		return trial{v, fmt.Sprint("trial-", n), true}, nil
	})
	if !report.OK() {
		t.Errorf("%s\n%s", report, report.First)
	}
}

func TestTrialsFindAnUnguardedService(t *testing.T) {
	v := newService(t, nil)
	report := fencetest.Run(t, fencetest.Options{Trials: 60, Parallel: 4}, func(n int) (fencetest.Resource, error) {
		return trial{v, fmt.Sprint("trial-", n), false}, nil
	})
	if report.Stale == 0 {
		t.Errorf("no stale write without a guard: the trials prove nothing: %s", report)
	}
}
