package workertest_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/leasehold-dev/leasehold/ownership/fence"
	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"github.com/leasehold-dev/leasehold/ownership/worker"
	"github.com/leasehold-dev/leasehold/ownership/workertest"
)

// play is a story being played.
type play struct {
	stage
	*diary
	keyspace string
}

// process runs a worker; stop ends its Run as SIGTERM would, and notes what it
// has returned.
func (p *play) process(name, id, keyspace string, h worker.Handler, opts ...worker.Option) (stop, wait func()) {
	p.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	w, err := worker.Join(ctx, p.config(id))
	if err != nil {
		p.t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx, keyspace, h, opts...) }()
	p.t.Cleanup(cancel)
	wait = func() {
		err := <-done
		var refused *worker.RefusedError
		switch {
		case errors.As(err, &refused):
			p.note("%s: Run is refused: %s %s", name, refused.Detail.GetReason(), refused.Detail.GetValue())
		case errors.Is(err, worker.ErrWorkerIDInUse):
			p.note("%s: Run: the id is in use", name)
		default:
			p.note("%s: Run: %v", name, err)
		}
	}
	return func() {
		cancel()
		wait()
	}, wait
}

// plain is the usual handler.
func (p *play) plain(ctx context.Context, l *worker.Lease) error {
	n := p.begin(l)
	select {
	case <-l.Draining():
		p.note("lease %d is asked to finish", n)
		return nil
	case <-ctx.Done():
		p.note("lease %d has ended: %v; Check: %v", n, context.Cause(ctx), l.Check())
		return context.Cause(ctx)
	}
}

// once has the first lease handled in another way than the others.
func once(first, then worker.Handler) worker.Handler {
	called := false
	return func(ctx context.Context, l *worker.Lease) error {
		if called {
			return then(ctx, l)
		}
		called = true
		return first(ctx, l)
	}
}

// aheadOf makes the resource see a token above the first one that it is shown.
type aheadOf struct {
	*fence.Memory
	high fence.Token
}

func (a *aheadOf) Claim(ctx context.Context, stamps []fence.Stamp) error {
	if a.high == 0 {
		s := stamps[0]
		s.Token += 1000
		s.Owner = "w9"
		a.high = s.Token
		if err := a.Memory.Claim(ctx, []fence.Stamp{s}); err != nil {
			return err
		}
	}
	return a.Memory.Claim(ctx, stamps)
}

// stories are played twice: what handlers see and what becomes of the leases
// must be the same on a real server and on a played one.
var stories = []struct {
	name   string
	fenced bool
	tell   func(p *play)
}{
	{"a grant, then the worker stops", false, func(p *play) {
		stop, _ := p.process("w1", "w1", p.keyspace, p.plain)
		p.own("w1")
		p.await("lease 1 starts")
		stop()
	}},
	{"a drain", false, func(p *play) {
		stop, _ := p.process("w1", "w1", p.keyspace, p.plain)
		p.own("w1")
		p.await("lease 1 starts")
		p.drain("w1")
		p.await("asked to finish")
		stop()
	}},
	{"a drain that takes too long", false, func(p *play) {
		stop, _ := p.process("w1", "w1", p.keyspace, func(ctx context.Context, l *worker.Lease) error {
			n := p.begin(l)
			<-l.Draining()
			p.note("lease %d is asked to finish, and is not done", n)
			<-ctx.Done()
			p.note("lease %d has ended: %v; Check: %v", n, context.Cause(ctx), l.Check())
			return nil
		})
		p.own("w1")
		p.await("lease 1 starts")
		p.drain("w1")
		p.await("has ended")
		stop()
	}},
	{"a session expires, and the worker comes back", false, func(p *play) {
		stop, _ := p.process("w1", "w1", p.keyspace, p.plain)
		p.own("w1")
		p.await("lease 1 starts")
		p.cut("w1")
		p.await("has ended")
		p.expired("w1")
		p.mend("w1")
		p.own("w1")
		p.await("lease 2 starts")
		stop()
	}},
	{"the network is away for a moment", false, func(p *play) {
		stop, _ := p.process("w1", "w1", p.keyspace, p.plain)
		p.own("w1")
		p.await("lease 1 starts")
		p.cut("w1")
		p.mend("w1")
		p.drain("w1") // it is back, and hears of it
		p.await("asked to finish")
		stop()
	}},
	{"O-16: a worker id in use by a live worker", false, func(p *play) {
		stop, _ := p.process("first", "w1", p.keyspace, p.plain)
		p.own("w1")
		p.await("lease 1 starts")
		_, wait := p.process("second", "w1", p.keyspace, p.plain)
		wait()
		stop()
	}},
	{"O-16: a worker out of touch is superseded", false, func(p *play) { p.supersede(false) }},
	{"a worker out of touch is superseded, fenced", true, func(p *play) { p.supersede(true) }},
	{"an eviction", false, func(p *play) {
		_, wait := p.process("w1", "w1", p.keyspace, p.plain)
		p.own("w1")
		p.await("lease 1 starts")
		p.evict("w1")
		wait()
	}},
	{"a revocation", true, func(p *play) {
		stop, _ := p.process("w1", "w1", p.keyspace, p.plain)
		p.own("w1")
		p.await("lease 1 starts")
		p.revoke()
		p.await("has ended")
		stop()
	}},
	{"a keyspace that does not exist", false, func(p *play) {
		_, wait := p.process("w1", "w1", p.keyspace+"x", p.plain)
		wait()
	}},
	{"a claim is refused", false, func(p *play) {
		guard := &aheadOf{Memory: fence.NewMemory(nil)}
		stop, _ := p.process("w1", "w1", p.keyspace, func(ctx context.Context, l *worker.Lease) error {
			p.note("started under a token above the resource's: %v", l.Token() > guard.high)
			return p.plain(ctx, l)
		}, worker.Claim(guard))
		p.own("w1")
		p.own("w1")
		p.await("lease 1 starts")
		stop()
	}},
	{"a write is refused", false, func(p *play) {
		guard := &aheadOf{Memory: fence.NewMemory(nil)}
		stop, _ := p.process("w1", "w1", p.keyspace, once(func(ctx context.Context, l *worker.Lease) error {
			p.note("the first lease")
			return fmt.Errorf("write: %w", guard.Claim(ctx, []fence.Stamp{l.Stamp()}))
		}, func(ctx context.Context, l *worker.Lease) error {
			p.note("started under a token above the resource's: %v", l.Token() > guard.high)
			return p.plain(ctx, l)
		}))
		p.own("w1")
		p.own("w1")
		p.await("lease 1 starts")
		stop()
	}},
	{"a handler gives up its partition", false, func(p *play) {
		stop, _ := p.process("w1", "w1", p.keyspace, once(func(context.Context, *worker.Lease) error { return nil }, p.plain))
		p.own("w1")
		p.own("w1")
		p.await("lease 1 starts")
		stop()
	}},
	{"a handler fails", false, func(p *play) {
		stop, _ := p.process("w1", "w1", p.keyspace, once(func(context.Context, *worker.Lease) error { return errors.New("no disk") }, p.plain))
		p.own("w1")
		p.own("w1")
		p.await("lease 1 starts")
		stop()
	}},
}

// supersede: a strict partition goes to the new process when the old one has
// heard of it, a fenced one at once.
func (p *play) supersede(atOnce bool) {
	_, wait := p.process("first", "w1", p.keyspace, p.plain)
	p.own("w1")
	p.await("lease 1 starts")
	p.cut("w1")
	stop, _ := p.process("second", "w1", p.keyspace, p.plain)
	p.opened("w1")
	if atOnce {
		p.own("w1")
		p.await("lease 2 starts")
	}
	p.mend("w1")
	if !atOnce {
		p.own("w1")
		p.await("lease 2 starts")
	}
	wait()
	stop()
}

func TestSameStoryOnARealServer(t *testing.T) {
	real := startReal(t)
	t.Run("stories", func(t *testing.T) {
		for i, story := range stories {
			t.Run(story.name, func(t *testing.T) {
				t.Parallel()
				var saw, ledger string // of the played server
				synctest.Test(t, func(t *testing.T) {
					space := workertest.Strict("orders", 1)
					if story.fenced {
						space = workertest.Fenced("orders", 1)
					}
					srv := workertest.NewServer(t, space, workertest.TTL(stageTTL))
					p := &play{stage: &played{t, srv}, diary: &diary{t: t}, keyspace: "orders"}
					story.tell(p)
					synctest.Wait()
					saw, ledger = p.String(), strings.Join(p.ledger(), "\n\t")
				})
				g := &genuine{realServer: real, t: t, prefix: fmt.Sprint("story", i)}
				mode := leaseholdv1.Takeover_TAKEOVER_STRICT
				if story.fenced {
					mode = leaseholdv1.Takeover_TAKEOVER_FENCED
				}
				g.create(mode)
				p := &play{stage: g, diary: &diary{t: t, prefix: g.prefix}, keyspace: g.name("orders")}
				story.tell(p)
				if real := p.String(); saw != real {
					t.Errorf("what handlers saw, played:\n\t%s\nreal:\n\t%s", saw, real)
				}
				// The last release of a worker that is barred is confirmed to nobody.
				var real string
				settled(func() bool {
					real = strings.Join(p.ledger(), "\n\t")
					return real == ledger
				})
				if real != ledger {
					t.Errorf("what became of the lease, played:\n\t%s\nreal:\n\t%s", ledger, real)
				}
			})
		}
	})
}
