package session

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/leasehold-dev/leasehold/ownership/bootclock"
)

// Causes of the end of Lost.
var (
	// ErrGone says that the servers do not know the session any more.
	ErrGone = errors.New("the session has ended at the servers")
	// ErrClosed says that Close was called.
	ErrClosed = errors.New("the session was closed")
)

// UnprovenError says that no keep-alive was acknowledged in time.
type UnprovenError struct {
	Since time.Duration // since the last acknowledged one was sent
	TTL   time.Duration
	Last  error // of the last try, or nil
}

// Error names the time, the TTL and the last error.
func (e *UnprovenError) Error() string {
	text := fmt.Sprintf("no keep-alive was acknowledged for %v, the TTL is %v", e.Since.Round(time.Millisecond), e.TTL)
	if e.Last != nil {
		text += ": " + e.Last.Error()
	}
	return text
}

// Unwrap returns the last error.
func (e *UnprovenError) Unwrap() error { return e.Last }

// Config of a session.
type Config struct {
	// Leases is a client of the lease service; each call may go to another
	// server.
	Leases pb.LeaseClient
	// TTL in whole seconds, at least 2.
	TTL time.Duration
	// Grace is taken off the deadline: what the user needs to stop its work.
	Grace time.Duration
	// Clock is bootclock.Boot if nil.
	Clock bootclock.Clock
}

// The TTLs that the servers grant.
const (
	MinTTL = 2 * time.Second
	MaxTTL = 9_000_000_000 * time.Second
)

// Session is kept alive until it is lost or closed. Its methods may be called from
// any goroutine.
type Session struct {
	cfg  Config
	id   int64
	ttl  time.Duration
	lost context.Context
	end  context.CancelCauseFunc
	done chan struct{}

	mu   sync.Mutex
	sent time.Duration
	tell func(time.Duration)
}

// Open asks for a session and keeps it alive. ctx bounds the asking alone.
func Open(ctx context.Context, cfg Config) (*Session, error) {
	if cfg.TTL < MinTTL || cfg.TTL > MaxTTL || cfg.TTL%time.Second != 0 {
		return nil, fmt.Errorf("ttl %v: want whole seconds from %v to %v", cfg.TTL, MinTTL, MaxTTL)
	}
	if cfg.Clock == nil {
		cfg.Clock = bootclock.Boot()
	}
	sent := cfg.Clock.Now()
	r, err := cfg.Leases.LeaseGrant(ctx, &pb.LeaseGrantRequest{TTL: int64(cfg.TTL / time.Second)})
	if err != nil {
		return nil, err
	}
	s := &Session{cfg: cfg, id: r.GetID(), ttl: time.Duration(r.GetTTL()) * time.Second, sent: sent, tell: func(time.Duration) {}, done: make(chan struct{})}
	s.lost, s.end = context.WithCancelCause(context.Background())
	go s.run()
	return s, nil
}

// ID of the lease, never 0.
func (s *Session) ID() int64 { return s.id }

// TTL as granted.
func (s *Session) TTL() time.Duration { return s.ttl }

// Lost ends when the session may not be relied upon any more; the cause is
// ErrGone, ErrClosed or an *UnprovenError.
func (s *Session) Lost() context.Context { return s.lost }

// OnProven has f called with the send time of the last acknowledged keep-alive, at
// once and then with each later one. f must not block.
func (s *Session) OnProven(f func(sent time.Duration)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tell = f
	f(s.sent)
}

// Margin is what is taken off a TTL for clocks that run apart.
func Margin(ttl time.Duration) time.Duration { return max(ttl/20, 250*time.Millisecond) }

// deadline is until when the session may be relied upon.
func (s *Session) deadline() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sent + s.ttl - Margin(s.ttl) - s.cfg.Grace
}

func (s *Session) proven(sent time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if sent > s.sent {
		s.sent = sent
		s.tell(sent)
	}
}

// answer is how one keep-alive ended.
type answer struct {
	sent time.Duration
	err  error
}

// run sends keep-alives and watches the clock.
func (s *Session) run() {
	defer close(s.done)
	look := time.NewTicker(Margin(s.ttl) / 5)
	defer look.Stop()
	every := s.ttl / 4
	next := s.cfg.Clock.Now() + every
	answers, busy := make(chan answer, 1), false
	var last error
	for s.lost.Err() == nil {
		now := s.cfg.Clock.Now()
		switch {
		case now >= s.deadline():
			s.mu.Lock()
			since := now - s.sent
			s.mu.Unlock()
			s.end(&UnprovenError{Since: since, TTL: s.ttl, Last: last})
			continue
		case !busy && now >= next:
			busy, next = true, now+every
			go func() { answers <- answer{now, s.keepAlive()} }()
		}
		select {
		case a := <-answers:
			busy = false
			switch last = a.err; {
			case errors.Is(a.err, ErrGone):
				s.end(ErrGone)
			case a.err != nil:
				next = min(next, max(now, s.cfg.Clock.Now())+retryAfter)
			case s.cfg.Clock.Now() < s.deadline(): // too late is not at all
				s.proven(a.sent)
			}
		case <-look.C:
		case <-s.lost.Done():
		}
	}
	if busy {
		<-answers
	}
}

// retryAfter a keep-alive has failed.
const retryAfter = 200 * time.Millisecond

// keepAlive sends one and waits for its answer, for as long as it takes until the
// next is due.
func (s *Session) keepAlive() error {
	ctx, cancel := context.WithTimeout(s.lost, s.ttl/4)
	defer cancel()
	stream, err := s.cfg.Leases.LeaseKeepAlive(ctx)
	if err != nil {
		return err
	}
	if err := stream.Send(&pb.LeaseKeepAliveRequest{ID: s.id}); err != nil {
		return err
	}
	r, err := stream.Recv()
	switch {
	case err != nil:
		return err
	case r.GetTTL() <= 0:
		return ErrGone
	}
	_ = stream.CloseSend()
	return nil
}

// Abandon ends the keep-alives and leaves the session to its TTL: for when what was
// done under it may still go on.
func (s *Session) Abandon() {
	s.end(ErrClosed)
	<-s.done
}

// Close ends the session at once, and what hangs on it. Call it when all work under
// it has returned.
func (s *Session) Close(ctx context.Context) error {
	s.Abandon()
	_, err := s.cfg.Leases.LeaseRevoke(ctx, &pb.LeaseRevokeRequest{ID: s.id})
	return err
}
