package gossip

import (
	"context"
	"math/rand/v2"
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
//
// When all servers come back at other addresses, no worker can find one. So
// servers remember some workers too, and try those while they see no worker, or
// no other server.
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
	// workerRetry is the longest pause for a remembered worker, and after
	// workerTries it is forgotten: most of those that are missing will not come
	// back.
	workerRetry = 30 * time.Second
	workerTries = 20
	// lookupEvery is how often names of seeds are looked up while they are
	// missing.
	lookupEvery = 5 * time.Second
	// A server that was not seen for rememberFor is not looked for any more.
	rememberFor = time.Hour
	maxKnown    = 64
	maxWorkers  = 16 // remembered; a worker that is found knows the others
	maxJoins    = 8
	// quietTries is how many failures in a row are not worth a line.
	quietTries = 3
)

// announceAt are the times after the start at which we tell everybody again
// that we are here. Who still takes our predecessor at another address for
// alive, or has known it dead for less than deadNodeReclaimTime, has refused the
// first word without our noticing.
var announceAt = [...]time.Duration{900 * time.Millisecond, 1500 * time.Millisecond, 4 * time.Second, 10 * time.Second}

// seeker is the loop that looks for missing members. Its fields belong to the
// loop, except contested, returned and again.
type seeker struct {
	g       *Gossip
	seeds   []string
	targets map[string]*target // by ip:port
	results chan joined
	found   chan lookedUp // of the seeds
	reseeds chan []string // capacity 1: a new list of seeds
	looking bool
	lookAt  time.Time
	// outdated: what is being looked up are seeds that have been replaced.
	outdated  bool
	nameless  bool // some seed's name could not be looked up last time
	joining   int
	workersAt time.Time // of the next look at the workers

	announced int
	contested atomic.Bool
	claimAt   time.Time
	returned  atomic.Bool
	again     atomic.Bool // try all at once: we have changed
	sayAt     time.Time   // when to announce after a return; zero when not
	saved     []knownPeer
}

// target is an address where a member should be.
type target struct {
	name    string // "" for a seed that nobody has claimed
	worker  bool   // whether name is a worker's
	cluster string // of name, as far as is known
	seed    bool
	seen    time.Time // when a member was last up there
	next    time.Time
	failed  int
	trying  bool
	warned  time.Time
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
		found:   make(chan lookedUp, 1),
		reseeds: make(chan []string, 1),
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
		s.targets[p.addr] = &target{name: p.name, worker: p.worker(), seen: start}
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
		case found := <-s.found:
			s.setSeeds(found)
		case seeds := <-s.reseeds:
			s.reseed(seeds)
		}
	}
}

func (s *seeker) step(ctx context.Context, start, now time.Time) {
	ml := s.g.ml.Load()
	if ml == nil {
		return
	}
	if s.again.Swap(false) {
		s.startOver(now)
	}
	s.g.dropStrangers()
	s.g.checkPackets(ml, now)
	if s.g.table.forget(now) {
		s.g.noteChange()
	}
	up, servers, workers := s.lookAround(now)
	s.remember(now)
	s.insist(ml, start, now)
	if s.g.cfg.Meta.Role == RoleWorker && servers > 0 {
		return
	}
	s.lookUpSeeds(ctx, up, now)
	for addr, t := range s.targets {
		slots := maxJoins
		if t.worker && !t.seed {
			if servers > 0 && workers > 0 {
				continue
			}
			slots = maxJoins / 2 // they must not keep the seeds waiting
		}
		if !up[addr] && !t.trying && !now.Before(t.next) && s.joining < slots {
			s.join(ml, addr, t)
		}
	}
}

// startOver tries everything at once, but for what belongs to another cluster.
func (s *seeker) startOver(now time.Time) {
	for addr, t := range s.targets {
		t.next, t.failed = now, 0
		if s.g.foreign(Meta{ClusterID: t.cluster}) {
			t.name, t.worker, t.cluster = "", false, ""
			if !t.seed {
				delete(s.targets, addr)
			}
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
	if strings.Contains(r.err.Error(), foreignText) {
		t.next = now.Add(jitter(answeredRetry))
		return // said where it was refused
	}
	longest := lastRetry
	switch {
	case t.worker && t.failed >= workerTries:
		t.name, t.worker = "", false // remember drops it
		return
	case t.worker:
		longest = workerRetry
	case s.alone():
		longest = aloneRetry
	}
	t.next = now.Add(jitter(min(longest, firstRetry<<min(t.failed-1, 10))))
	// Servers that start together find each other closed for a moment; a refusal
	// is worth a line at once.
	why := hint(r.err)
	if t.worker && why == "" {
		return // nobody misses it but us
	}
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
