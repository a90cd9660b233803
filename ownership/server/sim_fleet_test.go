package server

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/leasehold-dev/leasehold/ownership/fence"
	"github.com/leasehold-dev/leasehold/ownership/worker"
	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// simProcess is one process of one worker: a restart is another one.
type simProcess struct {
	sim    *sim
	id     string
	number int
	host   *simHost
	clock  *simClock
	gate   simGate // of the handlers
	cancel context.CancelFunc
	killed chan struct{}
	done   chan struct{}
	err    error // of the end, once done is closed

	stopped bool // of the storm
	gone    bool // of the storm: killed or left
}

// spawn starts a process for a worker id.
func (s *sim) spawn(id string) *simProcess {
	s.processes++
	n := s.processes
	p := &simProcess{
		sim: s, id: id, number: n, host: s.net.host(fmt.Sprintf("10.1.%d.%d", n/200, n%200+1)),
		clock:  s.newClock(),
		killed: make(chan struct{}), done: make(chan struct{}),
	}
	s.workers[id] = p
	s.all = append(s.all, p)
	ctx, cancel := context.WithCancel(context.Background())
	p.cancel = cancel
	servers := s.addrs()
	go func() {
		defer close(p.done)
		defer cancel()
		p.err = p.run(ctx, servers)
	}()
	return p
}

// tagFormat makes the endpoint that tells processes of one worker apart.
const tagFormat = "process-%d"

func (p *simProcess) tag() string { return fmt.Sprintf(tagFormat, p.number) }

func (p *simProcess) run(ctx context.Context, servers string) error {
	h := p.sim.history
	cfg := worker.Config{
		Servers: servers, ID: p.id, Endpoint: p.tag(),
		GossipTransport: func() (memberlist.Transport, error) { return p.host.gossipPort() },
		ShutdownTimeout: 5 * time.Second,
		Clock:           p.clock, Dialer: p.host.dial, Logger: testLogger(p.sim.t, p.id+"/"+p.tag()),
		Observer: &worker.Observer{
			ContextStart: func(l *worker.Lease, at time.Duration) { h.add(p.note(noteStart, l, p.clock.truth(at)-simRounding)) },
			ContextEnd: func(l *worker.Lease, cause error, at time.Duration) {
				n := p.note(noteEnd, l, p.clock.truth(at)+simRounding)
				n.what = cause.Error()
				h.add(n)
			},
			KeepAliveAcked: func(sent time.Duration) {
				h.add(note{kind: noteAck, process: p.number, sent: p.clock.truth(sent)})
			},
		},
	}
	if !p.sim.pace.gossip {
		cfg.Gossip, cfg.GossipTransport = worker.GossipOff, nil
	}
	w, err := worker.Join(ctx, cfg)
	if err != nil {
		return err
	}
	errs := make([]error, len(simKeyspaces))
	var runs sync.WaitGroup
	for i, k := range simKeyspaces {
		var opts []worker.Option
		if k.guarded {
			opts = append(opts, worker.Claim(p))
		}
		runs.Go(func() { errs[i] = w.Run(ctx, k.name, p.handler(k), opts...) })
	}
	runs.Wait()
	return errors.Join(errs...)
}

// simRounding covers what is lost when readings of a clock are turned into true
// times: contexts are taken to be live for longer.
const simRounding = time.Microsecond

func (p *simProcess) note(kind noteKind, l *worker.Lease, at time.Duration) note {
	return note{
		at: at, kind: kind, process: p.number,
		keyspace: l.Keyspace(), partition: l.Partition(), token: uint64(l.Token()),
	}
}

// Claim is the fence.Guard of the process: the resource's own, which also
// keeps the history, in the order in which it decides.
func (p *simProcess) Claim(ctx context.Context, stamps []fence.Stamp) error {
	p.gate.wait()
	var refused []*fence.StaleError
	for _, s := range stamps {
		var stale *fence.StaleError
		if errors.As(p.write(s, "claim"), &stale) {
			refused = append(refused, stale)
		}
	}
	if len(refused) > 0 {
		return &fence.ClaimError{Refused: refused}
	}
	return nil
}

func (p *simProcess) write(s fence.Stamp, what string) error {
	n := note{process: p.number, keyspace: s.Keyspace, partition: s.Partition, token: uint64(s.Token), what: what}
	err := p.sim.guard.Do(s, func() error {
		n.kind = noteAccept
		p.sim.history.add(n)
		return nil
	})
	if err != nil {
		n.kind = noteRefuse
		p.sim.history.add(n)
	}
	return err
}

// handler looks whether it is still the owner, works for a while, and writes,
// as careless programs do: whoever stops the process in between makes it write
// under a lease that is long over.
func (p *simProcess) handler(k simKeyspace) worker.Handler {
	return func(ctx context.Context, l *worker.Lease) error {
		rng := rand.New(rand.NewPCG(p.sim.seed, uint64(l.Token())))
		l.Ready()
		for {
			mine := l.Check() == nil
			select {
			case <-p.killed:
				return errKilled
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-l.Draining():
				time.Sleep(simDuration(rng, p.sim.pace.of(300*time.Millisecond))) // flush
				return nil
			case <-time.After(p.sim.pace.of(50*time.Millisecond + simDuration(rng, 600*time.Millisecond))):
			}
			p.gate.wait()
			select {
			case <-p.killed:
				return errKilled
			default:
			}
			if !mine {
				continue
			}
			n := p.note(noteAppend, l, 0)
			n.what = k.name
			p.sim.history.add(n)
			if k.guarded {
				_ = p.write(l.Stamp(), "write") // the history has the outcome
			}
		}
	}
}

var errKilled = errors.New("process killed")

// noteSessions remembers whose each session is.
func (s *sim) noteSessions() {
	for _, x := range s.servers {
		if srv := x.running(); srv != nil {
			srv.store.View(func(st *state.State) {
				for x := range st.Sessions() {
					var process int
					if _, err := fmt.Sscanf(x.Endpoint, tagFormat, &process); err == nil {
						s.sessions[x.ID] = process
					}
				}
			})
		}
	}
}

// kill is SIGKILL.
func (p *simProcess) kill() {
	if p.gone {
		return
	}
	p.gone, p.stopped = true, false
	p.sim.history.add(note{kind: noteCrash, process: p.number, what: p.id})
	p.host.kill()
	close(p.killed)
	p.gate.open()
	p.clock.gate.open()
	p.cancel()
}

// pause is SIGSTOP: network, clock readings and handlers stand still.
func (p *simProcess) pause() {
	if p.gone || p.stopped {
		return
	}
	p.stopped = true
	p.sim.history.add(note{kind: notePause, process: p.number, what: p.id})
	p.host.freeze(true)
	p.clock.gate.close()
	p.gate.close()
}

// resume is SIGCONT. The handlers are scheduled first: the worst case.
func (p *simProcess) resume() {
	if p.gone || !p.stopped {
		return
	}
	p.gate.open()
	time.Sleep(time.Millisecond)
	if p.gone || !p.stopped {
		return
	}
	p.stopped = false
	p.sim.history.add(note{kind: noteResume, process: p.number, what: p.id})
	p.clock.gate.open()
	p.host.freeze(false)
}

// leave is SIGTERM: the worker drains, and the process ends.
func (p *simProcess) leave() {
	if p.gone {
		return
	}
	p.resume()
	p.gone = true
	p.cancel()
}

// alive reports whether the process works as far as it can tell.
func (p *simProcess) alive() bool {
	select {
	case <-p.done:
		return false
	default:
		return !p.gone
	}
}

func (s *sim) addrs() string {
	var all []string
	for _, x := range s.servers {
		all = append(all, x.grpcAddr())
	}
	return strings.Join(all, ",")
}
