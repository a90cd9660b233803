package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
)

// probeTimeout is what a server gets to say who leads; a stopped one must not
// hold up the others for longer.
const probeTimeout = 2 * time.Second

// probeGrace is what the others get once one server has answered.
const probeGrace = 300 * time.Millisecond

// answer is what one server said about the cluster.
type answer struct {
	addr   string
	status *leaseholdv1.Status
	err    error
}

func (a answer) leads() bool {
	return a.err == nil && a.status.GetLeaderId() != "" && a.status.GetLeaderId() == a.status.GetServerId()
}

// pick returns the server to use: the one used before, or after a failure the
// leader if it answers, else anybody who does, else an *UnreachableError.
func (c *Client) pick(ctx context.Context) (string, error) {
	select {
	case c.picking <- struct{}{}:
		defer func() { <-c.picking }()
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
	c.mu.Lock()
	best, closed := c.best, c.closed
	c.mu.Unlock()
	if closed {
		return "", ErrClosed
	}
	if best != "" {
		return best, nil
	}
	answers := c.survey(ctx)
	chosen := prefer(answers)
	if chosen == "" {
		return "", c.unreachable(answers)
	}
	c.cfg.Logger.Debug("server chosen", "addr", chosen)
	c.mu.Lock()
	c.best = chosen
	c.mu.Unlock()
	return chosen, nil
}

// Servers asks who leads and returns all known addresses in the order to try
// them: the leader, those that answered, the rest. With no answer at all it
// returns the known ones with an *UnreachableError.
func (c *Client) Servers(ctx context.Context) ([]string, error) {
	answered, silent, err := c.Survey(ctx)
	return append(answered, silent...), err
}

// Survey is Servers with those that did not answer kept apart. They may be
// slow, or machines that are no more: a caller in a hurry does not wait for one
// after the other.
func (c *Client) Survey(ctx context.Context) (answered, silent []string, err error) {
	answers := c.survey(ctx)
	for _, a := range answers {
		switch {
		case a.leads():
			answered = append([]string{a.addr}, answered...)
		case a.err == nil:
			answered = append(answered, a.addr)
		default:
			silent = append(silent, a.addr)
		}
	}
	if len(answered) == 0 {
		return nil, silent, c.unreachable(answers)
	}
	return answered, silent, nil
}

// survey asks all candidates at once for their status, and then, if somebody
// names a leader that was not among them, that one too. It returns early when
// a leader has answered: nobody waits for a dead server's timeout.
func (c *Client) survey(ctx context.Context) []answer {
	asked := c.candidates()
	answers := c.ask(ctx, asked)
	known := make(map[string]bool, len(asked))
	for _, addr := range asked {
		known[addr] = true
	}
	for _, a := range answers {
		if a.leads() {
			return answers
		}
	}
	for _, a := range answers {
		if a.err != nil || a.status.GetLeaderGrpcAddr() == "" {
			continue
		}
		addr, err := parseServer(a.status.GetLeaderGrpcAddr())
		if err != nil || known[addr] {
			continue
		}
		known[addr] = true
		c.learn(addr)
		answers = append(answers, c.ask(ctx, []string{addr})...)
	}
	return answers
}

// errNotWaited stands for servers that were slower than the leader.
var errNotWaited = errors.New("has not answered yet")

func (c *Client) ask(ctx context.Context, addrs []string) []answer {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	answers := make([]answer, len(addrs))
	for i, addr := range addrs {
		answers[i] = answer{addr: addr, err: errNotWaited}
	}
	type numbered struct {
		i int
		answer
	}
	got := make(chan numbered, len(addrs))
	var wg sync.WaitGroup
	for i, addr := range addrs {
		wg.Go(func() {
			st, err := c.probe(ctx, addr)
			got <- numbered{i, answer{addr, st, err}}
		})
	}
	defer wg.Wait() // cancelled calls return at once
	defer cancel()
	grace := time.NewTimer(probeTimeout)
	defer grace.Stop()
	for range addrs {
		select {
		case n := <-got:
			answers[n.i] = n.answer
			if n.leads() {
				return answers
			}
			if n.err == nil {
				grace.Reset(probeGrace)
			}
		case <-grace.C:
			return answers
		}
	}
	return answers
}

func (c *Client) probe(ctx context.Context, addr string) (*leaseholdv1.Status, error) {
	cc, err := c.conn(addr)
	if err != nil {
		return nil, err
	}
	return leaseholdv1.NewClusterServiceClient(cc).GetStatus(ctx, &leaseholdv1.GetStatusRequest{})
}

// prefer chooses among the answers. Two may both call themselves leader for a
// moment; the higher term is right. Without one, a server that knows a leader
// can forward, and one that is ready beats one that is not.
func prefer(answers []answer) string {
	var best answer
	rank := func(a answer) int {
		switch {
		case a.leads():
			return 3
		case a.status.GetLeaderId() != "" && a.status.GetReady():
			return 2
		case a.status.GetLeaderId() != "":
			return 1
		}
		return 0
	}
	for _, a := range answers {
		if a.err != nil {
			continue
		}
		if best.addr == "" || rank(a) > rank(best) ||
			rank(a) == rank(best) && a.status.GetTerm() > best.status.GetTerm() {
			best = a
		}
	}
	return best.addr
}

// unreachable is the error of answers without a good one. Servers that have
// answered, and let nobody of us in, are reached: what they say is the error.
func (c *Client) unreachable(answers []answer) error {
	e := &UnreachableError{}
	var refused error
	for _, a := range answers {
		if errors.Is(a.err, ErrClosed) {
			return ErrClosed
		}
		if refused == nil && isRefusal(a.err) {
			refused = fmt.Errorf("server %s: %w", a.addr, a.err)
		}
		e.Servers = append(e.Servers, ServerError{a.addr, a.err, c.distrust(a.err)})
	}
	if refused != nil {
		return refused
	}
	return e
}

// patience ends when no server has answered for long enough.
type patience struct {
	limit time.Duration
	since time.Time // of the first of the failures in a row
}

// over looks at the error of a pick, or nil.
func (p *patience) over(err error) bool {
	var u *UnreachableError
	switch {
	case p.limit == 0:
		return false
	case !errors.As(err, &u):
		p.since = time.Time{}
		return false
	case p.since.IsZero():
		p.since = time.Now()
	}
	// A person who has given the wrong authority cannot mend it by waiting.
	return u.Distrust().Certain() || time.Since(p.since) >= p.limit
}

// pause is a growing, jittered wait between tries.
type pause struct{ next time.Duration }

func (p *pause) wait(ctx context.Context) error {
	p.next = min(max(2*p.next, 25*time.Millisecond), 500*time.Millisecond)
	t := time.NewTimer(p.next/2 + rand.N(p.next))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
