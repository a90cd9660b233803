package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// attemptTimeout is what one server gets for a call that can be made again
// elsewhere, so that a stopped process does not use up the caller's time.
const attemptTimeout = 3 * time.Second

// repeatable says whether doing a call twice is as good as once. Drain and
// undrain set a flag. Evict is not among them: a repeat could hit the
// worker's next session. Create and delete would report their own first try.
// Acquire finds the place, and the token, that an earlier try got.
func repeatable(method string) bool {
	switch method {
	case leaseholdv1.ClusterService_GetStatus_FullMethodName,
		leaseholdv1.ClusterService_ListPeers_FullMethodName,
		leaseholdv1.KeyspaceService_GetKeyspace_FullMethodName,
		leaseholdv1.KeyspaceService_ListKeyspaces_FullMethodName,
		leaseholdv1.PartitionService_ListPartitions_FullMethodName,
		leaseholdv1.PartitionService_GetPartition_FullMethodName,
		leaseholdv1.PartitionService_Locate_FullMethodName,
		leaseholdv1.WorkerService_ListWorkers_FullMethodName,
		leaseholdv1.WorkerService_DrainWorker_FullMethodName,
		leaseholdv1.WorkerService_UndrainWorker_FullMethodName,
		leaseholdv1.EventService_ListEvents_FullMethodName,
		leaseholdv1.SessionService_KeepAlive_FullMethodName,
		leaseholdv1.CoordinationService_Acquire_FullMethodName:
		return true
	}
	return false
}

// waits says whether a call lasts as long as others make it wait. No server
// counts as silent for that; only the connection says that it has gone.
func waits(method string) bool {
	return method == leaseholdv1.CoordinationService_Acquire_FullMethodName
}

// bounded gives a context without deadline the configured one.
func (c *Client) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, c.cfg.Timeout)
}

// Invoke implements grpc.ClientConnInterface for unary calls, with the choice
// of server and the retries that the package comment tells.
func (c *Client) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	if !waits(method) {
		var cancel context.CancelFunc
		ctx, cancel = c.bounded(ctx)
		defer cancel()
	}
	var b pause
	var said error // by the last try that had its time
	follows := 0
	left := patience{limit: c.cfg.Patience}
	for {
		addr, err := c.pick(ctx)
		if left.over(err) || isRefusal(err) {
			return err
		}
		next := retryLater
		if err == nil {
			err = c.attempt(ctx, addr, method, args, reply, opts, &next)
		}
		if err == nil || next == final || errors.Is(err, ErrClosed) {
			return err
		}
		if next == retryNow {
			// Two servers that each name the other would keep us busy.
			if follows++; follows%3 == 0 {
				next = retryLater
			}
		}
		if said == nil || !timeUp(ctx) {
			said = err
		}
		if ctx.Err() != nil || next == retryLater && b.wait(ctx) != nil {
			return gaveUp(ctx, said)
		}
	}
}

type verdict int

const (
	final verdict = iota
	retryNow
	retryLater
)

// attempt makes one try at one server and says through next what to do about
// an error.
func (c *Client) attempt(ctx context.Context, addr, method string, args, reply any, opts []grpc.CallOption, next *verdict) error {
	*next = final
	cc, err := c.conn(addr)
	if err != nil {
		return err
	}
	again := repeatable(method)
	try, sent := withSent(ctx)
	if again && !waits(method) {
		var cancel context.CancelFunc
		try, cancel = context.WithTimeout(try, attemptTimeout)
		defer cancel()
	}
	err = cc.Invoke(try, method, args, reply, opts...)
	if err == nil {
		return nil
	}
	*next, err = c.judge(ctx, addr, method, err, again || !sent.Load())
	return err
}

// judge says what an error means for the call, and forgets a server that has
// gone. harmless: trying again cannot do anything twice.
func (c *Client) judge(ctx context.Context, addr, method string, err error, harmless bool) (verdict, error) {
	d, code := Detail(err), status.Code(err)
	if d.Retryable() { // refused before anything was done
		if c.follow(addr, d.GetLeaderAddr()) {
			return retryNow, err
		}
		c.forget(addr)
		return retryLater, err
	}
	switch {
	case d.GetReason() == leaseholdv1.ReasonStoreFailed && harmless:
		c.forget(addr)
		return retryLater, err
	case d.GetReason() == leaseholdv1.ReasonUnknownOutcome, d.GetReason() == leaseholdv1.ReasonDeadline:
		if harmless {
			return retryLater, err
		}
		return final, &UnknownOutcomeError{method, err}
	case d != nil:
		return final, err // a server's considered answer
	case code != codes.Unavailable && code != codes.DeadlineExceeded && code != codes.Canceled:
		return final, err
	}
	// No server said this: the connection broke or time ran out.
	if code == codes.Unavailable || ctx.Err() == nil {
		c.forget(addr)
	}
	if harmless {
		return retryLater, err
	}
	return final, &UnknownOutcomeError{method, err}
}

// follow moves on to the leader that a server named, once: if that is where
// the answer came from, nobody knows better yet.
func (c *Client) follow(from, leader string) bool {
	leader, err := parseServer(leader)
	if err != nil || leader == from {
		return false
	}
	c.learn(leader)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.best != from {
		return false
	}
	c.best = leader
	return true
}

// timeUp tells whether a context has ended, or will as soon as its timer gets the
// processor: gRPC looks at the clock itself, and may give up a little earlier.
func timeUp(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return ctx.Err() != nil || ok && !time.Now().Before(deadline)
}

// gaveUp is the error when time ran out: what the last whole try said tells
// more than that.
func gaveUp(ctx context.Context, last error) error {
	cause := context.Cause(ctx)
	if errors.Is(last, cause) {
		return last
	}
	return fmt.Errorf("%w (%w)", last, cause)
}

// NewStream implements grpc.ClientConnInterface. The choice of a server is
// retried; a stream that breaks is its caller's, and makes the next call
// choose anew.
func (c *Client) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	choose, cancel := c.bounded(ctx)
	defer cancel()
	var b pause
	left := patience{limit: c.cfg.Patience}
	for {
		addr, err := c.pick(choose)
		if left.over(err) || isRefusal(err) {
			return nil, err
		}
		if err == nil {
			var cc *grpc.ClientConn
			if cc, err = c.conn(addr); err != nil {
				return nil, err
			}
			var s grpc.ClientStream
			if s, err = cc.NewStream(ctx, desc, method, opts...); err == nil {
				return &stream{s, c, addr}, nil
			}
			if status.Code(err) != codes.Unavailable {
				return nil, err
			}
			c.forget(addr)
		}
		if errors.Is(err, ErrClosed) {
			return nil, err
		}
		if b.wait(choose) != nil {
			return nil, gaveUp(choose, err)
		}
	}
}

// stream notices when its server has gone.
type stream struct {
	grpc.ClientStream
	c    *Client
	addr string
}

// RecvMsg receives one message.
func (s *stream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	if status.Code(err) == codes.Unavailable {
		s.c.forget(s.addr)
	}
	return err
}
