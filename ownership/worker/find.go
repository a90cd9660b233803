package worker

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/client"
	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
)

// How the search for a server goes.
const (
	// openWait is how long a server may take to open a session: it may have to
	// ask the session that has the worker id now, or wait for it.
	openWait = 15 * time.Second
	// Between two rounds over all servers, jittered.
	minPause = 50 * time.Millisecond
	maxPause = 500 * time.Millisecond
	// silentWait is how long one server may take that has not answered when
	// others have.
	silentWait = 500 * time.Millisecond
	// complainEvery is how often a search without success is logged.
	complainEvery = 10 * time.Second
	// maxInUseWait is how long a worker waits for its id to become free, once:
	// what holds it may be the process that this one replaces.
	maxInUseWait = 10 * time.Second
)

// finder looks for a server that attaches one session. It lives while there is
// no stream.
type finder struct {
	session uint64
	opened  bool // resume, do not open
	cancel  context.CancelFunc
	// asked is true while a request to open may have been carried out.
	asked atomic.Bool
}

// found is what a finder ends with: a stream with its first message, or a
// definite refusal.
type found struct {
	stream  *stream
	answer  *leaseholdv1.AttachResponse
	sent    reading // when the first request to open went out
	refused *leaseholdv1.ErrorDetail
}

// target is a server to try, and for how long.
type target struct {
	addr string
	wait time.Duration
}

// targets are the servers of one round. While some answer, of the silent ones
// only one is tried, for a short time: a lease can end while a worker waits for
// machines that are switched off, one after the other, and a new leader is
// there already.
func targets(answered, silent []string, avoid string, round int, wait time.Duration) []target {
	var out []target
	for _, addr := range without(answered, avoid) {
		out = append(out, target{addr, wait})
	}
	silent = without(silent, avoid)
	switch {
	case len(silent) == 0:
	case len(answered) > 0:
		out = append(out, target{silent[round%len(silent)], min(wait, silentWait)})
	default:
		for _, addr := range silent {
			out = append(out, target{addr, wait})
		}
	}
	return out
}

// find goes round the servers, the leader first, until one has answered
// definitely or ctx ends.
func (e *engine) find(ctx context.Context, f *finder, first *leaseholdv1.AttachRequest, wait time.Duration, avoid string) (found, bool) {
	var (
		sent   reading
		pause  = minPause
		waited bool
		said   = e.tenure.clock.Now()
	)
	if !f.opened {
		wait = openWait
	}
	shown := e.servers.shown()
	cl, err := e.servers.open()
	if err != nil {
		return found{}, false // Join has opened one
	}
	defer func() { cl.Close() }()
	for round := 0; ; round++ {
		// Gossip may find servers while none answers.
		if now := e.servers.shown(); !slices.Equal(now, shown) {
			if fresh, err := e.servers.open(); err == nil {
				cl.Close()
				cl, shown = fresh, now
			}
		}
		answered, silent, err := cl.Survey(ctx)
		e.servers.learn(slices.Concat(answered, silent))
		var denied *leaseholdv1.ErrorDetail // by those that have answered in this round
		for _, to := range targets(answered, silent, avoid, round, wait) {
			if ctx.Err() != nil {
				return found{}, false
			}
			var st *stream
			var answer *leaseholdv1.AttachResponse
			var at reading
			f.asked.Store(true)
			st, answer, at, err = attach(ctx, e.ctx, cl, to.addr, first, to.wait, e.tenure.read)
			d := client.Detail(err)
			if d == nil {
				d = cl.Refusal(err)
			}
			v := verdictOf(d)
			// A request that was answered with "not done" opened nothing.
			if sent == (reading{}) && !d.Retryable() && v != verdictInUse {
				sent = at
			}
			f.asked.Store(sent != (reading{}))
			if err == nil {
				return found{stream: st, answer: answer, sent: sent}, true
			}
			if v == verdictInUse && !waited {
				waited = true
				pause = min(time.Duration(d.GetRetryAfterMs())*time.Millisecond, maxInUseWait)
				break
			}
			if v == verdictDenied {
				if denied == nil || denied.GetReason() == leaseholdv1.ReasonLimited {
					denied = d
				}
				continue // the next server may have heard more
			}
			if definite(v, f.opened) {
				return found{sent: sent, refused: d}, true
			}
		}
		if denied != nil {
			return found{sent: sent, refused: denied}, true
		}
		avoid = ""
		if now := e.tenure.clock.Now(); err != nil && now-said >= complainEvery {
			said = now
			e.notes.say(logLine{slog.LevelWarn, "no server attaches the session", []any{"worker", e.id, "session", f.session, "cause", err}})
		}
		if !sleep(ctx, pause/2+rand.N(pause/2+1)) {
			return found{}, false
		}
		pause = min(max(2*pause, minPause), maxPause)
	}
}

// definite tells whether a refusal of the first request ends the search.
func definite(v verdict, resume bool) bool {
	switch v {
	case verdictNone:
		return false
	case verdictRefused, verdictInUse:
		return !resume
	}
	return true
}

// without moves an address to the end.
func without(addrs []string, avoid string) []string {
	out := make([]string, 0, len(addrs))
	last := ""
	for _, a := range addrs {
		if a == avoid {
			last = a
			continue
		}
		out = append(out, a)
	}
	if last != "" {
		out = append(out, last)
	}
	return out
}

func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// relay sends one keep-alive by a single call through a server other than the
// stream's, if there is one.
func (e *engine) relay(ctx context.Context, m *leaseholdv1.KeepAliveRequest, avoid string, wait time.Duration, try int) (*leaseholdv1.KeepAliveResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	cl, err := e.servers.open()
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	servers, err := cl.Servers(ctx)
	if len(servers) == 0 {
		return nil, err
	}
	if n := len(servers); n > 1 && avoid != "" {
		servers = without(servers, avoid)[:n-1]
	}
	conn, err := cl.Open(servers[try%len(servers)])
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	return leaseholdv1.NewSessionServiceClient(conn).KeepAlive(ctx, m)
}
