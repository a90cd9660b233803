package gossip

import (
	"context"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
)

// Where packets (UDP) are dropped and streams (TCP) are not, nobody dies:
// memberlist asks by stream, and through others. It warns only when the others
// cannot reach the member by packets either; a firewall between two of many
// goes unnoticed. So the direct probes of each member are counted here, and
// when packets fail time after time, a stream is tried.
const (
	// packetTries failures in a row are no accident: of links that lose 30 % of
	// all packets one in three hundred has as many.
	packetTries  = 8
	packetWait   = 2 * time.Second
	packetRetry  = 10 * time.Second // between two tries by stream
	packetChecks = 4                // members tried by stream per look
	// packetsEvery is how often the log hears of one member.
	packetsEvery = 5 * time.Minute
)

// packets knows how direct probes by packet end.
type packets struct {
	mu    sync.Mutex
	paths map[string]*path // by member; only those that failed
}

type path struct {
	failed int       // in a row
	since  time.Time // of the first of them
	next   time.Time // of the next try by stream
	said   time.Time
}

func newPackets() *packets { return &packets{paths: make(map[string]*path)} }

// fail notes that a packet was not answered in time.
func (p *packets) fail(name string, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.paths[name]
	if t == nil {
		t = &path{}
		p.paths[name] = t
	}
	if t.failed == 0 {
		t.since = now
	}
	t.failed++
}

// succeed notes that one was.
func (p *packets) succeed(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if t := p.paths[name]; t != nil {
		t.failed = 0
	}
}

// due returns members that should be tried by stream now, and forgets those
// that are not up.
func (p *packets) due(now time.Time, up func(name string) bool) (names []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for name, t := range p.paths {
		switch {
		case !up(name):
			delete(p.paths, name)
		case t.failed >= packetTries && now.Sub(t.since) >= packetWait && !now.Before(t.next) && len(names) < packetChecks:
			t.next = now.Add(jitter(packetRetry))
			names = append(names, name)
		}
	}
	return names
}

// speak tells whether the log should hear of this member now. What memberlist
// has found out by itself needs no try of ours.
func (p *packets) speak(name string, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.paths[name]
	if t == nil {
		t = &path{}
		p.paths[name] = t
	}
	t.next = now.Add(jitter(packetRetry))
	if !t.said.IsZero() && now.Sub(t.said) < packetsEvery {
		return false
	}
	t.said = now
	return true
}

// checkPackets tries by stream who does not answer packets.
func (g *Gossip) checkPackets(ml *memberlist.Memberlist, now time.Time) {
	up := func(name string) bool { m, ok := g.table.get(name); return ok && m.Up() }
	for _, name := range g.packets.due(now, up) {
		m, _ := g.table.get(name)
		g.spawn(func() {
			if g.answersStream(ml, m) {
				g.packetsFail(m.Name)
			}
		})
	}
}

func (g *Gossip) answersStream(ml *memberlist.Memberlist, m Member) bool {
	ctx, cancel := context.WithTimeout(context.Background(), streamTimeout)
	defer cancel()
	q := g.questions.open()
	defer g.questions.close(q)
	if g.sendStream(ml, m, message{kind: kindPing, id: q.id, from: g.cfg.Name, target: m.Name}) != nil {
		return false
	}
	select {
	case <-q.answered:
		return true
	case <-ctx.Done():
	case <-g.killed:
	case <-g.leaving:
	}
	return false
}

// packetsFail notes that a member answers streams and not packets.
func (g *Gossip) packetsFail(name string) {
	g.stats.udpFailures.Add(1)
	g.cfg.Observer.UDPFailed()
	if g.packets.speak(name, time.Now()) {
		m, _ := g.table.get(name)
		g.log.Warn("gossip: UDP probe failed, TCP ok: packets are dropped between the two; open UDP on the gossip port, both ways",
			"from", g.cfg.Name, "to", name, "addr", m.Addr)
	}
}

// NotifyPingComplete implements memberlist.PingDelegate: a packet was answered
// in time.
func (d *delegate) NotifyPingComplete(n *memberlist.Node, _ time.Duration, _ []byte) {
	d.g.packets.succeed(n.Name)
}

// AckPayload implements memberlist.PingDelegate; an answer says enough.
func (d *delegate) AckPayload() []byte { return nil }
