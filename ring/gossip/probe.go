package gossip

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
)

const (
	// probePatience is how long Probe waits for a sign of life: room for two
	// lost packets or for a stream.
	probePatience = 250 * time.Millisecond
	// probeStreamAfter is when a stream is tried too, as UDP may be blocked.
	probeStreamAfter = 80 * time.Millisecond
	// probeHelpers is how many others are asked to ask.
	probeHelpers = 2
	// askTries is how often a helper asks; two fit into the patience.
	askTries = 2
	// maxAsks bounds what we do for others at once.
	maxAsks = 32
)

// Probe asks whether a member lives: directly, and through two other members
// at once, since only our own way to it may be cut. It returns true as soon as
// anyone has had an answer. It returns false when it has asked and nobody heard
// anything for 250 ms, and only then: where nothing could be asked (unknown
// name, not running, ctx ended) there is no evidence of a death, and the result
// is true.
func (g *Gossip) Probe(ctx context.Context, name string) bool {
	ml := g.ml.Load()
	m, known := g.table.get(name)
	if ml == nil || !known || name == g.cfg.Name {
		return true
	}
	q := g.questions.open()
	defer g.questions.close(q)
	until := time.Now().Add(probePatience)
	if !g.spawn(func() { g.ping(ml, m, q, until) }) {
		return true
	}
	g.askOthers(ml, m, q)

	patience, stream := time.NewTimer(probePatience), time.NewTimer(probeStreamAfter)
	defer patience.Stop()
	defer stream.Stop()
	for {
		select {
		case <-q.answered:
			g.cfg.Observer.Probed(true)
			return true
		case <-stream.C:
			g.spawn(func() { _ = g.sendStream(ml, m, message{kind: kindPing, id: q.id, from: g.cfg.Name, target: m.Name}) })
		case <-patience.C:
			g.cfg.Observer.Probed(false)
			return false
		case <-ctx.Done():
			return true
		}
	}
}

// ping asks m itself, again and again: memberlist gives each try 50 ms.
func (g *Gossip) ping(ml *memberlist.Memberlist, m Member, q *question, until time.Time) {
	for time.Now().Before(until) {
		if _, err := ml.Ping(m.Name, address(m.Addr)); err == nil {
			q.answer()
			return
		} else if silence := (memberlist.NoPingResponseError{}); !errors.As(err, &silence) {
			return // could not be sent: the other ways remain
		}
		select {
		case <-q.answered:
			return
		default:
		}
	}
}

// askOthers sends the question to other members, servers first: they are on
// other machines than most workers, and few.
func (g *Gossip) askOthers(ml *memberlist.Memberlist, m Member, q *question) {
	msg := message{kind: kindAsk, id: q.id, from: g.cfg.Name, target: m.Name}.encode()
	for _, helper := range g.helpers(m.Name) {
		if err := ml.SendToAddress(memberlist.Address{Addr: helper.Addr, Name: helper.Name}, msg); err != nil {
			g.log.Debug("ask another member to probe", "member", helper.Name, "target", m.Name, "error", err)
		}
	}
}

func (g *Gossip) helpers(target string) []Member {
	all := g.table.all()
	rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	var servers, workers []Member
	for _, m := range all {
		switch {
		case m.Status != Alive || m.Name == target || m.Name == g.cfg.Name:
		case m.Meta.Role == RoleServer:
			servers = append(servers, m)
		default:
			workers = append(workers, m)
		}
	}
	all = append(servers, workers...)
	return all[:min(len(all), probeHelpers)]
}

// receive takes a probe message off the network. It must not block: packets
// wait behind it.
func (g *Gossip) receive(b []byte) {
	if len(b) > maxPayload {
		g.cfg.Observer.Rejected(rejectedSize)
		return
	}
	m, err := decodeMessage(b)
	if err != nil {
		g.cfg.Observer.Rejected(rejectedDecode)
		return
	}
	switch m.kind {
	case kindPong, kindYes:
		g.questions.answer(m.id)
	case kindPing, kindAsk:
		select {
		case g.asks <- m:
		default:
			g.cfg.Observer.Rejected(rejectedOverflow)
		}
	}
}

// answerLoop answers the questions of others, a bounded number at once.
func (g *Gossip) answerLoop(ctx context.Context) {
	slots := make(chan struct{}, maxAsks)
	for {
		var m message
		select {
		case <-ctx.Done():
			return
		case m = <-g.asks:
		}
		ml := g.ml.Load()
		// Answers go to the address we know, never to one that a packet names:
		// nobody can use us to send packets to third parties.
		asker, known := g.table.get(m.from)
		if ml == nil || !known {
			continue
		}
		select {
		case slots <- struct{}{}:
		default:
			g.cfg.Observer.Rejected(rejectedOverflow)
			continue
		}
		if !g.spawn(func() { defer func() { <-slots }(); g.reply(ml, asker, m) }) {
			return
		}
	}
}

func (g *Gossip) reply(ml *memberlist.Memberlist, asker Member, m message) {
	if m.kind == kindPing {
		// The address may have been given to another process since.
		if m.target == g.cfg.Name {
			_ = g.sendStream(ml, asker, message{kind: kindPong, id: m.id, from: g.cfg.Name, target: m.target})
		}
		return
	}
	target, known := g.table.get(m.target)
	if !known {
		return
	}
	for range askTries {
		if _, err := ml.Ping(target.Name, address(target.Addr)); err != nil {
			continue
		}
		yes := message{kind: kindYes, id: m.id, from: g.cfg.Name, target: m.target}.encode()
		if err := ml.SendToAddress(memberlist.Address{Addr: asker.Addr, Name: asker.Name}, yes); err != nil {
			g.log.Debug("report a probe", "member", asker.Name, "error", err)
		}
		return
	}
}

// sendStream sends over TCP; it may take as long as a connection may.
func (g *Gossip) sendStream(ml *memberlist.Memberlist, to Member, m message) error {
	host, port, err := net.SplitHostPort(to.Addr)
	if err != nil {
		return err
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return err
	}
	node := &memberlist.Node{Name: to.Name, Addr: net.ParseIP(host), Port: uint16(n)}
	if err := ml.SendReliable(node, m.encode()); err != nil {
		g.log.Debug("send a probe message by stream", "member", to.Name, "error", err)
		return err
	}
	return nil
}

// address is a net.Addr for a string; memberlist only asks for the string.
type address string

func (address) Network() string  { return "udp" }
func (a address) String() string { return string(a) }

// question is one Probe that waits for an answer.
type question struct {
	id       uint64
	once     sync.Once
	answered chan struct{}
}

func (q *question) answer() { q.once.Do(func() { close(q.answered) }) }

// questions are those that wait, by number.
type questions struct {
	mu      sync.Mutex
	waiting map[uint64]*question
}

func newQuestions() *questions { return &questions{waiting: make(map[uint64]*question)} }

func (qs *questions) open() *question {
	q := &question{answered: make(chan struct{})}
	qs.mu.Lock()
	defer qs.mu.Unlock()
	for q.id == 0 || qs.waiting[q.id] != nil {
		q.id = rand.Uint64()
	}
	qs.waiting[q.id] = q
	return q
}

func (qs *questions) close(q *question) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	delete(qs.waiting, q.id)
}

// answer ends the question of that number; late answers find none.
func (qs *questions) answer(id uint64) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	if q := qs.waiting[id]; q != nil {
		q.answer()
	}
}
