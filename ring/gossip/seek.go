package gossip

import (
	"context"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/hashicorp/memberlist"
)

// memberlist never heals a split once both sides have marked each other dead:
// the dead get no packets. The seeker looks for who should be there and is not:
// the seeds, and the servers it has known. A join costs a full exchange of
// state, so only missing addresses are tried, and workers try only while they
// see no server at all; the servers find each other and tell them.
const (
	seekInterval = 250 * time.Millisecond
	// A missing address is tried after firstRetry, then twice as late each time
	// up to lastRetry; while we are alone, up to aloneRetry.
	firstRetry = 500 * time.Millisecond
	lastRetry  = 5 * time.Second
	aloneRetry = 2 * time.Second
	// An address that answered but is nobody's (a load balancer, another
	// interface of a member) is left alone for a while.
	answeredRetry = time.Minute
	// lookupEvery is how often names of seeds are looked up while they are
	// missing.
	lookupEvery = 5 * time.Second
	// A server that was not seen for rememberFor is not looked for any more.
	rememberFor = time.Hour
	maxKnown    = 64
	maxJoins    = 8
	// quietTries is how many failures in a row are not worth a line.
	quietTries = 3
)

// announceAt are the times after the start at which we tell everybody again
// that we are here. Who still takes our predecessor at another address for
// alive, or has known it dead for less than a second, has refused the first
// word without our noticing.
var announceAt = [...]time.Duration{1500 * time.Millisecond, 4 * time.Second, 10 * time.Second}

// seeker is the loop that looks for missing members. Its fields belong to the
// loop, except contested and returned.
type seeker struct {
	g       *Gossip
	seeds   []string
	targets map[string]*target // by ip:port
	results chan joined
	found   chan []string // addresses of the seeds, looked up
	looking bool
	lookAt  time.Time
	joining int

	announced int
	contested atomic.Bool
	claimAt   time.Time
	returned  atomic.Bool
	sayAt     time.Time // when to announce after a return; zero when not
	saved     []knownPeer
}

// target is an address where a member should be.
type target struct {
	name   string // "" for a seed that nobody has claimed
	seed   bool
	seen   time.Time // when a member was last up there
	next   time.Time
	failed int
	trying bool
	warned time.Time
}

type joined struct {
	addr string
	err  error
}

func newSeeker(g *Gossip) *seeker {
	s := &seeker{
		g:       g,
		targets: make(map[string]*target),
		results: make(chan joined, maxJoins),
		found:   make(chan []string, 1),
	}
	for _, seed := range g.cfg.Seeds {
		s.seeds = append(s.seeds, strings.TrimSpace(seed))
	}
	return s
}

// contest notes that somebody holds our name to be at another address. It is
// called with memberlist's lock held.
func (s *seeker) contest() { s.contested.Store(true) }

// noteReturn notes that somebody who was taken for dead lives. Then others may
// have taken us for dead too, and ignore what they hear about us until we say
// something new; memberlist would find out at its next exchange of state, half
// a minute later. It is called with memberlist's lock held.
func (s *seeker) noteReturn() { s.returned.Store(true) }

func (s *seeker) loop(ctx context.Context) {
	start := time.Now()
	for _, p := range s.g.loadPeers() {
		s.targets[p.addr] = &target{name: p.name, seen: start}
	}
	tick := time.NewTicker(seekInterval)
	defer tick.Stop()
	for {
		s.step(ctx, start, time.Now())
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case r := <-s.results:
			s.finish(r)
		case addrs := <-s.found:
			s.setSeeds(addrs)
		}
	}
}

func (s *seeker) step(ctx context.Context, start, now time.Time) {
	ml := s.g.ml.Load()
	if ml == nil {
		return
	}
	if s.g.table.forget(now) {
		s.g.noteChange()
	}
	up, servers := s.lookAround(now)
	s.remember(now)
	s.insist(ml, start, now)
	if s.g.cfg.Meta.Role == RoleWorker && servers > 0 {
		return
	}
	s.lookUpSeeds(ctx, up, now)
	for addr, t := range s.targets {
		if !up[addr] && !t.trying && !now.Before(t.next) && s.joining < maxJoins {
			s.join(ml, addr, t)
		}
	}
}

// lookAround returns the addresses at which members are up, and how many of
// those are other servers.
func (s *seeker) lookAround(now time.Time) (up map[string]bool, servers int) {
	up = map[string]bool{s.g.local: true}
	for _, m := range s.g.table.all() {
		if !m.Up() || m.Name == s.g.cfg.Name {
			continue
		}
		up[m.Addr] = true
		if m.Meta.Role == RoleServer {
			servers++
			s.see(m, now)
		}
	}
	return up, servers
}

// see notes that a server is up.
func (s *seeker) see(m Member, now time.Time) {
	t := s.targets[m.Addr]
	if t == nil {
		t = &target{}
		s.targets[m.Addr] = t
	}
	t.name, t.seen, t.failed = m.Name, now, 0
	// Should it vanish, the first try comes a moment later, not all at once.
	t.next = now.Add(jitter(firstRetry))
}

// remember forgets what is not worth a try any more, and keeps the rest on disk.
func (s *seeker) remember(now time.Time) {
	var peers []knownPeer
	for addr, t := range s.targets {
		m, ok := s.g.table.get(t.name)
		moved := ok && (m.Status == Left || m.Up() && m.Addr != addr)
		if moved || now.Sub(t.seen) > rememberFor {
			t.name = ""
		}
		if t.name == "" && !t.seed {
			delete(s.targets, addr)
			continue
		}
		if t.name != "" {
			peers = append(peers, knownPeer{name: t.name, addr: addr})
		}
	}
	slices.SortFunc(peers, comparePeers)
	peers = peers[:min(len(peers), maxKnown)]
	if len(peers) > 0 && !slices.Equal(peers, s.saved) {
		s.saved = peers
		s.g.savePeers(peers)
	}
}

// lookUpSeeds turns the seeds into addresses, in the background: a name server
// may be slow.
func (s *seeker) lookUpSeeds(ctx context.Context, up map[string]bool, now time.Time) {
	if s.looking || now.Before(s.lookAt) || len(s.seeds) == 0 || s.allSeedsUp(up) {
		return
	}
	s.lookAt = now.Add(jitter(lookupEvery))
	s.looking = s.g.spawn(func() {
		addrs := s.resolve(ctx)
		select {
		case s.found <- addrs:
		case <-ctx.Done():
		}
	})
}

func (s *seeker) allSeedsUp(up map[string]bool) bool {
	n := 0
	for addr, t := range s.targets {
		if t.seed {
			if !up[addr] {
				return false
			}
			n++
		}
	}
	return n > 0
}

func (s *seeker) resolve(ctx context.Context) []string {
	var addrs []string
	for _, seed := range s.seeds {
		host, port, err := net.SplitHostPort(seed)
		if err != nil {
			continue // New has checked it
		}
		ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
		ips, err := lookup(ctx, host)
		cancel()
		if err != nil {
			s.g.log.Warn("gossip seed cannot be looked up", "seed", seed, "error", err)
			continue
		}
		for _, ip := range ips {
			addrs = append(addrs, net.JoinHostPort(ip.String(), port))
		}
	}
	return addrs
}

// setSeeds replaces the addresses of the seeds. An empty list keeps the old
// ones: then nothing could be looked up.
func (s *seeker) setSeeds(addrs []string) {
	s.looking = false
	if len(addrs) == 0 {
		return
	}
	for addr, t := range s.targets {
		t.seed = slices.Contains(addrs, addr)
		if !t.seed && t.name == "" && !t.trying {
			delete(s.targets, addr)
		}
	}
	for _, addr := range addrs {
		if s.targets[addr] == nil && addr != s.g.local {
			s.targets[addr] = &target{seed: true}
		}
	}
}

// join tries one address. memberlist's Join takes a list, but walks through it
// one by one and waits for each.
func (s *seeker) join(ml *memberlist.Memberlist, addr string, t *target) {
	t.trying = s.g.spawn(func() {
		_, err := ml.Join([]string{addr})
		s.results <- joined{addr, err}
	})
	if t.trying {
		s.joining++
	}
}

func (s *seeker) finish(r joined) {
	s.joining--
	s.g.cfg.Observer.Rejoined(r.err == nil)
	t := s.targets[r.addr]
	if t == nil {
		return
	}
	t.trying = false
	now := time.Now()
	if r.err == nil {
		// A known server that answered and is still not up needs another try
		// soon: something was lost on the way.
		wait := answeredRetry
		if t.name != "" {
			wait = lastRetry
		}
		t.failed, t.next = 0, now.Add(jitter(wait))
		return
	}
	t.failed++
	longest := lastRetry
	if s.alone() {
		longest = aloneRetry
	}
	t.next = now.Add(jitter(min(longest, firstRetry<<min(t.failed-1, 10))))
	// Servers that start together find each other closed for a moment; a refusal
	// is worth a line at once.
	why := hint(r.err)
	if now.Sub(t.warned) >= 6*logEvery && (t.failed >= quietTries || why != "") {
		t.warned = now
		s.g.log.Warn("gossip member cannot be reached; trying on"+why, "addr", r.addr, "member", t.name, "error", r.err)
	}
}

func (s *seeker) alone() bool {
	for _, m := range s.g.table.all() {
		if m.Up() && m.Name != s.g.cfg.Name {
			return false
		}
	}
	return true
}

// hint guesses what the other end could not tell us: it closes a connection of
// another label without a word.
func hint(err error) string {
	text := err.Error()
	for _, sign := range []string{"EOF", "reset", "label", "closed", "decrypt", "encrypt"} {
		if strings.Contains(text, sign) {
			return ": it refused us, its cluster label or gossip key may differ from ours"
		}
	}
	return ""
}

// insist repeats that we are here: at fixed times after the start, after a
// split, and while somebody else is said to have our name.
func (s *seeker) insist(ml *memberlist.Memberlist, start, now time.Time) {
	if s.announced < len(announceAt) && now.Sub(start) >= announceAt[s.announced] {
		s.announced++
		signal(s.g.publish)
	}
	if s.returned.Swap(false) && s.sayAt.IsZero() {
		s.sayAt = now.Add(rand.N(time.Second)) // not all in step
	}
	if !s.sayAt.IsZero() && !now.Before(s.sayAt) {
		s.sayAt = time.Time{}
		signal(s.g.publish)
	}
	if !s.contested.Load() || now.Before(s.claimAt) {
		return
	}
	s.contested.Store(false)
	s.claimAt = now.Add(jitter(time.Second))
	signal(s.g.publish)
	// The exchange shows whether the other end still holds on to the old one;
	// if so, NotifyConflict sets contested again.
	if helpers := s.g.helpers(""); len(helpers) > 0 && s.joining < maxJoins {
		addr := helpers[0].Addr
		if s.g.spawn(func() { _, err := ml.Join([]string{addr}); s.results <- joined{addr, err} }) {
			s.joining++
		}
	}
}

// jitter spreads d by a quarter up and down, so that many members do not act in
// step.
func jitter(d time.Duration) time.Duration {
	return d*3/4 + rand.N(d/2)
}
