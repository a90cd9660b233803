package etcdapi

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/leasehold-dev/leasehold/raftstore/access"
	"github.com/leasehold-dev/leasehold/raftstore/etcdapi/relaypb"
	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// relayServer takes the calls that followers hand on.
type relayServer struct {
	relaypb.UnimplementedRelayServiceServer
	*API
}

// relayWorkers is how many calls of one follower are worked on at a time. More
// wait in the stream.
const relayWorkers = 2048

// exchange is one follower's stream. Each call has a goroutine while it waits for
// the log: keeping them for the next calls has not made a difference that could
// be measured.
type exchange struct {
	a     *API
	ctx   context.Context
	from  access.Identity // the follower
	slots chan struct{}   // holds one for each call under way
	wake  chan struct{}   // capacity 1: there are answers, or no more calls

	mu      sync.Mutex
	answers []*relaypb.Answer
	cancels map[uint64]context.CancelFunc // of the calls under way
	busy    int                           // calls under way
	ended   bool                          // no more calls will come
}

// Exchange works on calls until the follower has no more, or this server stops.
// A server that does not lead answers each with codeNotDone.
func (s *relayServer) Exchange(stream relaypb.RelayService_ExchangeServer) error {
	from := access.FromContext(stream.Context())
	if from.Role != access.Server && from.Source != access.Open {
		return denied(from, "the relay", "the role server")
	}
	x := &exchange{
		a: s.API, ctx: stream.Context(), from: from, slots: make(chan struct{}, relayWorkers), wake: make(chan struct{}, 1),
		cancels: map[uint64]context.CancelFunc{},
	}
	if !s.routines.start(func() { x.receive(stream) }) {
		return errStopped
	}
	return x.send(stream)
}

func (x *exchange) signal() {
	select {
	case x.wake <- struct{}{}:
	default:
	}
}

// receive starts calls until the stream ends.
func (x *exchange) receive(stream relaypb.RelayService_ExchangeServer) {
	for {
		m, err := stream.Recv()
		if err != nil {
			x.mu.Lock()
			x.ended = true
			x.mu.Unlock()
			x.signal()
			return
		}
		for _, c := range m.Calls {
			if c.Cancel {
				x.cancel(c.Id)
				continue
			}
			x.give(c)
		}
	}
}

func (x *exchange) cancel(id uint64) {
	x.mu.Lock()
	stop := x.cancels[id]
	x.mu.Unlock()
	if stop != nil {
		stop()
	}
}

// give starts a call, and waits when there are too many under way.
func (x *exchange) give(c *relaypb.Call) {
	select {
	case x.slots <- struct{}{}:
	case <-x.ctx.Done():
		return // nobody waits for it any more
	}
	x.mu.Lock()
	x.busy++
	x.mu.Unlock()
	started := x.a.routines.start(func() {
		x.answer(c, x.do(c))
		<-x.slots
	})
	if !started {
		x.answer(c, &relaypb.Answer{Id: c.Id, Status: statusBytes(errStopped)})
	}
}

// do carries out one call.
func (x *exchange) do(c *relaypb.Call) (out *relaypb.Answer) {
	out = &relaypb.Answer{Id: c.Id}
	row := x.a.callOf(method(c.Method))
	switch {
	case row == nil:
		out.Status = statusBytes(errFeature) // of a follower of a later release
		return out
	case !x.a.cfg.Store.IsLeader():
		out.Status = statusBytes(status.Error(codeNotDone, "not the leader"))
		return out
	}
	defer func() {
		if p := recover(); p != nil {
			x.a.log.Error("a call panicked", "method", row.name, "cause", fmt.Sprint(p), "stack", string(debug.Stack()))
			out = &relaypb.Answer{Id: c.Id, Status: statusBytes(status.Errorf(codes.Internal, "etcdserver: %s panicked", row.name))}
		}
	}()
	ctx, stop := x.begin(c, &out.Index)
	defer stop()
	ctx, err := x.caller(ctx, c, row)
	req, resp := row.request(), row.response()
	if err == nil {
		err = proto.Unmarshal(c.Body, req)
	}
	if err == nil {
		err = row.handle(x.a, ctx, req, resp)
	}
	if err == nil {
		out.Body, err = proto.Marshal(resp)
	}
	if err != nil {
		out.Status = statusBytes(err)
	}
	return out
}

// caller puts into a call's context for whom the follower asks: it has found out, and
// what it says is believed since only a server can have said it, but for a credential
// of whose end it may not have heard. What it asks for nobody must be a question of
// its own.
func (x *exchange) caller(ctx context.Context, c *relaypb.Call, row *call) (context.Context, error) {
	id := access.Anybody()
	switch {
	case c.Identity != "":
		var err error
		if id, err = access.Decode(c.Identity); err != nil {
			return ctx, denied(id, row.name, "an identity that this release knows: "+err.Error())
		}
		if err = x.a.stillProven(ctx, id); err != nil {
			return ctx, err
		}
	case x.from.Source != access.Open:
		if id = (access.Identity{}); !row.own {
			return ctx, denied(id, row.name, "an identity")
		}
	}
	return access.NewContext(ctx, id), nil
}

// stillProven refuses a credential that was revoked or has run out. One that is not
// known here may be new.
func (a *API) stillProven(ctx context.Context, id access.Identity) error {
	if id.Source != access.Bearer || !a.authEnabled() {
		return nil
	}
	good := false
	look := func(s *state.State) {
		c, ok := s.Credential(id.Credential)
		good = ok && !c.Expired(a.cfg.Wall())
	}
	if a.cfg.Store.View(look); good {
		return nil
	}
	if err := a.cfg.Store.Read(ctx, look); err != nil {
		return err
	}
	if !good {
		return rpctypes.ErrGRPCInvalidAuthToken
	}
	return nil
}

// forwarded is what a server says of a caller to the leader.
func forwarded(ctx context.Context) string {
	if id := access.FromContext(ctx); id.Source != access.Open && id.Role != 0 {
		return id.Encode()
	}
	return ""
}

// begin makes the context of a call, which ends when its caller has gone.
func (x *exchange) begin(c *relaypb.Call, index *uint64) (context.Context, context.CancelFunc) {
	timeout := x.a.cfg.callTimeout()
	if c.TimeoutMs > 0 {
		timeout = min(timeout, time.Duration(c.TimeoutMs)*time.Millisecond)
	}
	ctx, stop := context.WithTimeoutCause(context.WithValue(x.ctx, indexKey{}, index), timeout, errCallTimeout)
	x.mu.Lock()
	x.cancels[c.Id] = stop
	x.mu.Unlock()
	return ctx, stop
}

func (x *exchange) answer(c *relaypb.Call, a *relaypb.Answer) {
	x.mu.Lock()
	delete(x.cancels, c.Id)
	x.busy--
	x.answers = append(x.answers, a)
	x.mu.Unlock()
	x.signal()
}

// statusBytes is what an error becomes between servers.
func statusBytes(err error) []byte {
	if errors.Is(notDone(err), errNotDone) {
		err = status.Error(codeNotDone, "not the leader")
	}
	b, merr := proto.Marshal(status.Convert(toStatus(err)).Proto())
	if merr != nil || len(b) == 0 {
		b, _ = proto.Marshal(status.New(codes.Internal, "etcdserver: status cannot be encoded").Proto())
	}
	return b
}

// send sends the answers that there are, until there can be no more.
func (x *exchange) send(stream relaypb.RelayService_ExchangeServer) error {
	stopping := x.a.stopping.Done()
	for {
		select {
		case <-x.wake:
		case <-x.ctx.Done():
			return toStatus(context.Cause(x.ctx))
		case <-stopping:
			// What is under way may still be answered.
			stopping = nil
			x.signal()
			continue
		}
		for m := x.next(); len(m.Answers) > 0; m = x.next() {
			if err := stream.Send(m); err != nil {
				return err
			}
		}
		x.mu.Lock()
		over := x.busy == 0 && len(x.answers) == 0 && (x.ended || stopping == nil)
		x.mu.Unlock()
		if over && stopping == nil {
			return errStopped
		}
		if over {
			return nil
		}
	}
}

// next takes what goes into one message.
func (x *exchange) next() *relaypb.ExchangeResponse {
	x.mu.Lock()
	defer x.mu.Unlock()
	size, n := 0, 0
	for n < len(x.answers) {
		size += len(x.answers[n].Body)
		if n++; size > relayMessage {
			break
		}
	}
	m := &relaypb.ExchangeResponse{Answers: x.answers[:n:n]}
	if x.answers = x.answers[n:]; len(x.answers) == 0 {
		x.answers = nil
	}
	return m
}
