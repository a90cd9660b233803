package difftest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"
)

// Runner sends one workload to both sides and compares.
type Runner struct {
	a, b *Side
	gen  *Generator
	seed uint64
	// pairs are the watch streams; the watches of the last begin in the future.
	pairs []*watchPair
	// Operations and Events that were compared.
	Operations, Events int
	recent             []fmt.Stringer // calls that may have written
}

const (
	watchPairs  = 3
	readers     = 8  // calls under way at once while nothing is written
	keptCalls   = 12 // that a difference is shown with
	mostWatches = 5  // of a stream
)

// NewRunner returns one for two sides that are both new.
func NewRunner(a, b *Side, seed uint64) *Runner {
	return &Runner{a: a, b: b, gen: NewGenerator(seed), seed: seed}
}

// Close closes the watch streams.
func (r *Runner) Close() {
	for _, p := range r.pairs {
		p.close()
	}
	r.pairs = nil
}

// Run goes on until at least that many operations have been compared, or the
// first difference, which is the error: it tells the seed, the call, both
// answers and the calls before.
func (r *Runner) Run(ctx context.Context, operations int) error {
	for target := r.Operations + operations; r.Operations < target; {
		if err := r.round(ctx); err != nil {
			return r.explain(err)
		}
	}
	return nil
}

// round writes for a while, settles the watches and reads.
func (r *Runner) round(ctx context.Context) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	for range 4 + r.gen.rng.IntN(20) {
		if err := r.write(ctx); err != nil {
			return err
		}
	}
	if err := r.settle(); err != nil {
		return err
	}
	for at := range max(len(r.a.conns), len(r.b.conns)) {
		if err := r.catchUp(ctx, at); err != nil {
			return err
		}
	}
	if err := r.rewatch(); err != nil {
		return err
	}
	return r.read(ctx) // while etcd brings new watches up to the present
}

// write sends one call that may write, and compares.
func (r *Runner) write(ctx context.Context) error {
	c := r.writeCall()
	if c.Method == methodCompact {
		// What a watch tells of the past depends on when it is compacted.
		if err := r.settle(); err != nil {
			return err
		}
	}
	if c.local() {
		if err := r.catchUp(ctx, c.At); err != nil {
			return err
		}
	}
	x, err := r.both(ctx, c)
	r.remember(c)
	if err != nil {
		return err
	}
	r.Operations += operations(x)
	r.learn(c, x)
	return nil
}

func (r *Runner) writeCall() *Call {
	g := r.gen
	c := &Call{At: g.rng.IntN(8)}
	switch n := g.rng.IntN(100); {
	case n < 30:
		c.Method, c.Req = methodPut, g.putRequest()
	case n < 40:
		c.Method, c.Req = methodDelete, g.deleteRequest()
	case n < 88:
		c.Method, c.Req = methodTxn, g.txnRequest()
	case n < 90 && !r.pairs[watchPairs-1].waits(g.Revision):
		c.Method, c.Req = methodCompact, &pb.CompactionRequest{Revision: r.compaction(), Physical: g.one(2)}
	default:
		at := c.At
		c = g.leaseCall()
		c.At = at
	}
	return c
}

// compaction is a revision to compact at: mostly one a little behind.
func (r *Runner) compaction() int64 {
	g := r.gen
	if rev := g.past(); rev != 0 && g.one(4) {
		return rev
	}
	return max(g.Compacted+1, g.Revision-int64(g.rng.IntN(100)))
}

// both sends a call to both sides at once and compares the answers.
func (r *Runner) both(ctx context.Context, c *Call) (Answer, error) {
	done := make(chan Answer, 1)
	go func() { done <- r.b.Do(ctx, c) }()
	x := r.a.Do(ctx, c)
	if err := compare(r.a, r.b, c.Req, x, <-done); err != nil {
		return x, fmt.Errorf("%s\n%w", c, err)
	}
	return x, nil
}

// learn takes from an answer what the generator draws from.
func (r *Runner) learn(c *Call, x Answer) {
	if x.Err != nil {
		return
	}
	r.gen.Revision = max(r.gen.Revision, x.Resp.(interface{ GetHeader() *pb.ResponseHeader }).GetHeader().GetRevision())
	if c.Method == methodCompact {
		r.gen.Compacted = c.Req.(*pb.CompactionRequest).Revision
	}
}

func (r *Runner) remember(c fmt.Stringer) {
	if r.recent = append(r.recent, c); len(r.recent) > keptCalls {
		r.recent = r.recent[1:]
	}
}

func (r *Runner) explain(err error) error {
	text := ""
	for _, c := range r.recent {
		text += "\n  " + shorten(c.String(), 600)
	}
	return fmt.Errorf("seed %d, after %d operations, revision %d, compacted %d: %w\nthe last that may have written, newest last:%s",
		r.seed, r.Operations, r.gen.Revision, r.gen.Compacted, err, text)
}

// read sends many calls at once, at the present and at past revisions.
func (r *Runner) read(ctx context.Context) error {
	calls := make([]*Call, 40+r.gen.rng.IntN(120))
	for i := range calls {
		calls[i] = r.readCall()
	}
	next := make(chan *Call)
	errs := make([]error, readers)
	var done atomic.Int64
	var wg sync.WaitGroup
	for i := range readers {
		wg.Go(func() {
			for c := range next {
				x, err := r.both(ctx, c)
				if err != nil && errs[i] == nil {
					errs[i] = err
				}
				done.Add(int64(operations(x)))
			}
		})
	}
	for _, c := range calls {
		next <- c
	}
	close(next)
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err // the first of them is enough
		}
	}
	r.Operations += int(done.Load())
	return nil
}

// catchUp has a server answer a linearizable read: it answers everything else
// from there on.
func (r *Runner) catchUp(ctx context.Context, at int) error {
	r.Operations++
	_, err := r.both(ctx, &Call{Method: methodRange, At: at, Req: &pb.RangeRequest{Key: []byte{'a'}}})
	return err
}

func (r *Runner) readCall() *Call {
	g := r.gen
	c := &Call{Method: methodRange, At: g.rng.IntN(8)}
	switch {
	case g.one(100):
		rev := g.past()
		if rev <= g.Compacted {
			rev = 0
		}
		c.Method, c.Req = methodHashKV, &pb.HashKVRequest{Revision: rev}
	case g.one(60):
		c.Method, c.Req = methodTimeToLive, &pb.LeaseTimeToLiveRequest{ID: g.someLease(), Keys: true}
	case g.one(10):
		c.Method, c.Req = methodTxn, g.readTxn()
	default:
		c.Req = g.rangeRequest()
	}
	return c
}

// settle compares what all watches have received.
func (r *Runner) settle() error {
	for i, p := range r.pairs {
		n, err := p.settle(r.gen.Revision)
		if err != nil {
			return fmt.Errorf("watch stream %d at server %d: %w", i, p.at, err)
		}
		r.Events += n
	}
	return nil
}

func (r *Runner) open() error {
	for range watchPairs {
		p, err := openPair(r.a, r.b, r.gen.rng.IntN(8))
		if err != nil {
			return err
		}
		r.pairs = append(r.pairs, p)
	}
	return nil
}

// watching describes a change of the watches.
type watching struct {
	what string
	req  proto.Message
}

func (w watching) String() string {
	if w.req == nil {
		return w.what
	}
	return w.what + ": " + show(w.req)
}

// rewatch creates watches, cancels some, and now and then has a new stream go
// on where an old one ended.
func (r *Runner) rewatch() error {
	g := r.gen
	for i, p := range r.pairs {
		future := i == watchPairs-1
		if len(p.watches) < mostWatches && g.one(3) && (!future || !p.waits(g.Revision)) {
			if p.unsure() {
				if err := r.resume(i); err != nil {
					return err
				}
				p = r.pairs[i]
			}
			req := g.watchRequest(future)
			r.remember(watching{fmt.Sprintf("watch on stream %d", i), req})
			r.Operations++
			if err := p.create(req, g.Compacted); err != nil {
				return fmt.Errorf("watch stream %d: %s: %w", i, show(req), err)
			}
		}
		if ids := p.ids(); len(ids) > 0 && g.one(8) && !future {
			id := ids[g.rng.IntN(len(ids))]
			if err := r.cancel(i, id); err != nil {
				return err
			}
		}
		if g.one(25) && !future {
			if err := r.resume(i); err != nil {
				return err
			}
		}
	}
	return nil
}

// cancel cancels one watch; what it had to tell was told.
func (r *Runner) cancel(i int, id int64) error {
	n, err := r.pairs[i].settle(r.gen.Revision)
	r.Events += n
	if err == nil && r.pairs[i].watches[id] != nil {
		r.remember(watching{fmt.Sprintf("cancel watch %d on stream %d", id, i), nil})
		r.Operations++
		n, err = r.pairs[i].stop(id)
		r.Events += n
	}
	if err != nil {
		return fmt.Errorf("cancel watch %d on stream %d: %w", id, i, err)
	}
	return nil
}

// resume ends a stream and lets another, perhaps at another server, go on.
func (r *Runner) resume(i int) error {
	old := r.pairs[i]
	n, err := old.settle(r.gen.Revision)
	r.Events += n
	if err != nil {
		return fmt.Errorf("watch stream %d at server %d: %w", i, old.at, err)
	}
	old.close()
	p, err := openPair(r.a, r.b, r.gen.rng.IntN(8))
	if err != nil {
		return err
	}
	r.pairs[i] = p
	for _, id := range old.ids() {
		req := old.watches[id].resume()
		r.remember(watching{fmt.Sprintf("resume watch %d on stream %d", id, i), req})
		r.Operations++
		if err := p.create(req, r.gen.Compacted); err != nil {
			return fmt.Errorf("resume on watch stream %d: %s: %w", i, show(req), err)
		}
	}
	return nil
}

var errStore = errors.New("the stores are not alike at the start")

// Start checks that both sides are new.
func (r *Runner) Start(ctx context.Context) error {
	if err := errors.Join(r.a.WaitServing(ctx), r.b.WaitServing(ctx), r.open()); err != nil {
		return err
	}
	for at := range max(len(r.a.conns), len(r.b.conns)) {
		x, err := r.both(ctx, &Call{Method: methodRange, At: at, Req: &pb.RangeRequest{Key: []byte{0}, RangeEnd: []byte{0}}})
		if err != nil {
			return errors.Join(errStore, err)
		}
		if n := x.Resp.(*pb.RangeResponse); n.Header.Revision != 1 || n.Count != 0 {
			return fmt.Errorf("%w: %s", errStore, x)
		}
	}
	return nil
}

// resync takes the revision anew from both sides, after a difference that
// was made on purpose.
func (r *Runner) resync(ctx context.Context) error {
	x, err := r.both(ctx, &Call{Method: methodHashKV, Req: &pb.HashKVRequest{}})
	if err != nil {
		return err
	}
	h := x.Resp.(*pb.HashKVResponse)
	r.gen.Revision, r.gen.Compacted = h.Header.Revision, max(0, h.CompactRevision)
	return r.open()
}
