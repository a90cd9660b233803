package etcdapi

import (
	"context"
	"errors"
	"io"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/leasehold-dev/leasehold/raftstore/etcdapi/relaypb"
)

// relayStream is one stream to one server that leads, or led. Calls wait in it
// until they can be sent: all that have come while one message was being sent
// go into the next.
type relayStream struct {
	a        *API
	id, addr string

	ctx    context.Context
	cancel context.CancelCauseFunc
	broken chan struct{} // closed when it takes no more calls, whatever the cause
	worked atomic.Bool   // an answer has come
	wake   chan struct{} // capacity 1: there is something to send, or it was retired

	mu      sync.Mutex
	closed  bool      // takes no more calls
	retired bool      // another leader, or none: what is under way may still be answered
	waiting []*handed // not sent
	sent    map[uint64]*handed
	cancels []uint64 // to be told to the leader
	lastID  uint64
}

// handed is one call that was handed to a stream. finish is called once, by any
// goroutine, and must not block.
type handed struct {
	method   method
	body     []byte
	identity string // of the caller; empty: this server asks itself
	timeout  int64  // ms
	finish   func(answer)

	id uint64 // 0: not sent
}

// answer to a call. err is errNotDone, errRelayBroke (it may have been done), a
// status of the leader's, or the cause of the caller's context.
type answer struct {
	body  []byte
	index uint64
	err   error
}

// relayMessage bounds what goes into one message, in bytes, unless a single call
// is larger.
const relayMessage = 1 << 20

func newRelayStream(a *API, id, addr string) *relayStream {
	s := &relayStream{
		a: a, id: id, addr: addr,
		broken: make(chan struct{}), wake: make(chan struct{}, 1), sent: map[uint64]*handed{},
	}
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	return s
}

func (s *relayStream) isBroken() bool {
	select {
	case <-s.broken:
		return true
	default:
		return false
	}
}

// ask hands a call over and waits for its answer.
func (s *relayStream) ask(ctx context.Context, m method, body []byte) answer {
	answered := make(chan answer, 1)
	h := &handed{method: m, body: body, identity: forwarded(ctx), finish: func(a answer) { answered <- a }}
	if end, ok := ctx.Deadline(); ok {
		h.timeout = max(time.Until(end).Milliseconds(), 1)
	}
	s.start(h)
	select {
	case a := <-answered:
		return a
	case <-ctx.Done():
		s.abandon(h)
		return answer{err: context.Cause(ctx)}
	}
}

// start hands a call over. Its finish may run before start returns.
func (s *relayStream) start(h *handed) {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		h.finish(answer{err: errNotDone})
		return
	}
	s.waiting = append(s.waiting, h)
	s.mu.Unlock()
	s.signal()
}

func (s *relayStream) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// abandon tells the leader that nobody waits for a call any more.
func (s *relayStream) abandon(h *handed) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h.id == 0 {
		for i, w := range s.waiting {
			if w == h {
				s.waiting = append(s.waiting[:i], s.waiting[i+1:]...)
				return
			}
		}
		return
	}
	if _, ok := s.sent[h.id]; ok {
		delete(s.sent, h.id)
		s.cancels = append(s.cancels, h.id)
		s.signal()
	}
}

// retire lets the stream end: what is not sent comes back, what is may be
// answered within two election timeouts.
func (s *relayStream) retire() {
	s.mu.Lock()
	s.retired, s.closed = true, true
	back := s.waiting
	s.waiting = nil
	idle := len(s.sent) == 0
	s.mu.Unlock()
	for _, h := range back {
		h.finish(answer{err: errNotDone})
	}
	if idle {
		s.cancel(errLeaderFailed)
	}
	s.signal()
}

// run opens the stream and works until it breaks or is retired. It returns when
// every call has been answered.
func (s *relayStream) run() {
	err := s.exchange()
	s.cancel(err)
	s.mu.Lock()
	s.closed = true
	back, lost := s.waiting, s.sent
	s.waiting, s.sent = nil, nil
	if s.retired && (err == nil || errors.Is(err, errRelayBroke)) {
		err = errLeaderFailed
	}
	s.mu.Unlock()
	close(s.broken)
	for _, h := range back {
		h.finish(answer{err: errNotDone})
	}
	for _, h := range lost {
		h.finish(answer{err: err})
	}
}

// exchange returns why calls that are under way have no answer.
func (s *relayStream) exchange() error {
	conn, err := grpc.NewClient("passthrough:///"+s.addr, append(relayOptions(), s.a.cfg.Dial...)...)
	if err != nil {
		s.a.log.Error("leader cannot be dialled", "leader", s.id, "address", s.addr, "cause", err)
		return errRelayBroke
	}
	defer conn.Close()
	stream, err := relaypb.NewRelayServiceClient(conn).Exchange(s.ctx)
	if err != nil {
		s.a.log.Debug("leader does not answer", "leader", s.id, "address", s.addr, "cause", err)
		return errRelayBroke
	}
	received := make(chan error, 1)
	go func() { received <- s.receive(stream) }()
	return s.send(stream, received)
}

// relayOptions notice a leader that stopped answering.
func relayOptions() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 10 * time.Second, Timeout: 2 * time.Second}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(math.MaxInt32)),
	}
}

// send sends what waits until the stream ends. received yields once.
func (s *relayStream) send(stream relaypb.RelayService_ExchangeClient, received <-chan error) error {
	var enough <-chan time.Time
	for {
		select {
		case err := <-received:
			return err
		case <-enough: // the former leader does not answer
			s.cancel(errLeaderFailed)
			<-received //nolint:errcheck // the cause is known
			return errLeaderFailed
		case <-s.wake:
		}
		// Let those who are about to ask do so: they share the message.
		runtime.Gosched()
		m, retired := s.next()
		if len(m.Calls) > 0 && stream.Send(m) != nil {
			return <-received // it has the cause
		}
		if retired && enough == nil {
			_ = stream.CloseSend() // an error shows on the way back
			timer := time.NewTimer(2 * s.a.cfg.ElectionTimeout)
			defer timer.Stop()
			enough = timer.C
		}
	}
}

// next takes what goes into one message.
func (s *relayStream) next() (m *relaypb.ExchangeRequest, retired bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m = &relaypb.ExchangeRequest{}
	if s.retired {
		return m, true
	}
	size := 0
	for len(s.waiting) > 0 {
		h := s.waiting[0]
		if size += len(h.body) + len(h.identity); size > relayMessage && len(m.Calls) > 0 {
			s.signal()
			break
		}
		s.lastID++
		h.id = s.lastID
		s.sent[h.id] = h
		m.Calls = append(m.Calls, &relaypb.Call{Id: h.id, Method: uint32(h.method), Body: h.body, TimeoutMs: h.timeout, Identity: h.identity})
		s.waiting[0] = nil
		s.waiting = s.waiting[1:]
	}
	if len(s.waiting) == 0 {
		s.waiting = nil
	}
	for _, id := range s.cancels {
		m.Calls = append(m.Calls, &relaypb.Call{Id: id, Cancel: true})
	}
	s.cancels = nil
	return m, false
}

// receive hands answers to their callers until the stream ends, and returns why
// the rest have none.
func (s *relayStream) receive(stream relaypb.RelayService_ExchangeClient) error {
	for {
		m, err := stream.Recv()
		switch {
		case err == nil:
		case status.Code(err) == codes.Unimplemented:
			return errFeature // a server of an older release: it has done nothing
		case errors.Is(err, io.EOF):
			return errRelayBroke
		default:
			s.a.log.Debug("stream to the leader ended", "leader", s.id, "address", s.addr, "cause", err)
			return errRelayBroke
		}
		s.worked.Store(true)
		for _, a := range m.Answers {
			if h := s.take(a.Id); h != nil {
				h.finish(answerOf(a))
			}
		}
	}
}

func (s *relayStream) take(id uint64) *handed {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.sent[id]
	delete(s.sent, id)
	return h
}

// codeNotDone marks, between servers, calls that changed nothing because the
// asked server does not lead. Clients never see it.
const codeNotDone = codes.Aborted

func answerOf(a *relaypb.Answer) answer {
	if len(a.Status) == 0 {
		return answer{body: a.Body, index: a.Index}
	}
	var p spb.Status
	if err := proto.Unmarshal(a.Status, &p); err != nil {
		return answer{err: err}
	}
	if codes.Code(p.Code) == codeNotDone {
		return answer{err: errNotDone}
	}
	return answer{err: status.ErrorProto(&p)}
}
