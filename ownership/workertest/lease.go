package workertest

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/fence"
	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
)

// space is a keyspace. Server.mu guards the maps.
type space struct {
	id         uint32
	name       string
	partitions uint32
	fenced     bool
	owners     map[uint32]*lease
	before     map[uint32]string // the worker that held it last
}

// lease is the right of one session to one partition, also after it has ended.
type lease struct {
	space     *space
	partition uint32
	token     fence.Token
	session   *session
	previous  string
	drainBy   time.Time   // zero: not draining
	timer     *time.Timer // for the end of a drain in a fenced keyspace
	over      *Event      // how it ended at the server
	// What the worker's library said.
	running  bool
	returned bool
	err      error // of the handler, once returned
	end      error // why its context ended
}

// firstToken is where the product would start, so that tokens look like real
// ones: centiseconds since 2025, moved up. Fake time begins before that.
func firstToken(now time.Time) fence.Token {
	since := now.Sub(time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC))
	return fence.Token(max(1, since/(10*time.Millisecond))) << 13
}

func (s *Server) spaceLocked(name string) *space {
	for _, sp := range s.spaces {
		if sp.name == name {
			return sp
		}
	}
	return nil
}

func (s *Server) joinedMessage(sp *space) *leaseholdv1.KeyspaceJoined {
	mode := leaseholdv1.Takeover_TAKEOVER_STRICT
	if sp.fenced {
		mode = leaseholdv1.Takeover_TAKEOVER_FENCED
	}
	return &leaseholdv1.KeyspaceJoined{
		KeyspaceId: sp.id, Name: sp.name, Partitions: sp.partitions, TtlMs: s.ttl.Milliseconds(), Takeover: mode,
	}
}

func (l *lease) message() *leaseholdv1.Leases {
	return &leaseholdv1.Leases{KeyspaceId: l.space.id, Partitions: []uint32{l.partition}, Tokens: []uint64{uint64(l.token)}}
}

func (l *lease) stopTimer() {
	if l.timer != nil {
		l.timer.Stop()
	}
}

// event completes e with what the lease is.
func (l *lease) event(e Event) Event {
	e.Worker, e.Keyspace, e.Partition, e.Token = l.session.worker, l.space.name, l.partition, l.token
	return e
}

// byToken lists what a session holds, in the order of the grants.
func (x *session) byToken() []*lease {
	return slices.SortedFunc(maps.Values(x.held), func(a, b *lease) int { return cmp.Compare(a.token, b.token) })
}

func (s *Server) sendChanges(x *session, c *leaseholdv1.LeaseChanges) {
	if x.stream != nil && x.barred == "" {
		c.Term, c.Index = 1, s.index
		x.stream.push(&leaseholdv1.AttachResponse{Response: &leaseholdv1.AttachResponse_Changes{Changes: c}})
	}
}

// grantLocked gives a partition that nobody holds to a session.
func (s *Server) grantLocked(x *session, sp *space, partition uint32) *lease {
	s.token++
	l := &lease{space: sp, partition: partition, token: s.token, session: x, previous: sp.before[partition]}
	sp.owners[partition], sp.before[partition] = l, x.worker
	x.held[l.token], s.leases[l.token] = l, l
	s.recordLocked(l.event(Event{Kind: KindGrant}))
	g := l.message()
	g.Previous = []uint32{0}
	if l.previous != "" {
		g.Previous, g.PreviousOwners = []uint32{1}, []string{l.previous}
	}
	s.sendChanges(x, &leaseholdv1.LeaseChanges{Granted: []*leaseholdv1.Leases{g}})
	return l
}

// drainLocked asks the owner to finish. A fenced lease is taken back when the
// time is over; a strict one ends by release or with its session.
func (s *Server) drainLocked(l *lease, budget time.Duration, cause string) {
	if !l.drainBy.IsZero() {
		return
	}
	l.drainBy = time.Now().Add(budget)
	s.recordLocked(l.event(Event{Kind: KindDrain, Cause: cause}))
	g := l.message()
	g.DrainMs, g.Cause = max(1, budget.Milliseconds()), cause
	s.sendChanges(l.session, &leaseholdv1.LeaseChanges{Drain: []*leaseholdv1.Leases{g}})
	if l.space.fenced {
		l.timer = time.AfterFunc(budget, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.revokeLocked(l, CauseTimeout)
		})
	}
}

// revokeLocked takes a fenced lease back at once.
func (s *Server) revokeLocked(l *lease, cause string) {
	if l.over != nil {
		return
	}
	s.freeLocked(l, Event{Kind: KindRevoke, Cause: cause})
	g := l.message()
	g.Cause = cause
	s.sendChanges(l.session, &leaseholdv1.LeaseChanges{Revoked: []*leaseholdv1.Leases{g}})
	s.closeIfEmptyLocked(l.session)
}

// freeLocked ends a lease at the server.
func (s *Server) freeLocked(l *lease, e Event) {
	l.stopTimer()
	e = l.event(e)
	e.At = time.Since(s.began)
	l.over = &e
	delete(l.space.owners, l.partition)
	delete(l.session.held, l.token)
	s.recordLocked(e)
}

// causes are the words for what a worker says with a release.
var causes = map[leaseholdv1.ReleaseCause]string{
	leaseholdv1.ReleaseCause_RELEASE_CAUSE_DRAINED:       CauseDrained,
	leaseholdv1.ReleaseCause_RELEASE_CAUSE_YIELD:         CauseYield,
	leaseholdv1.ReleaseCause_RELEASE_CAUSE_FAILED:        CauseFailed,
	leaseholdv1.ReleaseCause_RELEASE_CAUSE_ENDED:         CauseEnded,
	leaseholdv1.ReleaseCause_RELEASE_CAUSE_CLAIM_REFUSED: CauseClaimRefused,
	leaseholdv1.ReleaseCause_RELEASE_CAUSE_REFUSED:       CauseRefused,
}

// releaseLocked takes back what the session holds with just those tokens, and
// says of the rest that it was not held any more.
func (s *Server) releaseLocked(x *session, m *leaseholdv1.ReleaseLeases) *leaseholdv1.AttachResponse {
	answer := &leaseholdv1.LeasesReleased{Request: m.GetRequest()}
	for _, ref := range m.GetLeases() {
		l := x.held[fence.Token(ref.GetToken())]
		if l == nil || l.space.id != ref.GetKeyspaceId() || l.partition != ref.GetPartition() {
			answer.Refused = append(answer.Refused, ref)
			continue
		}
		s.freeLocked(l, Event{Kind: KindRelease, Cause: causes[m.GetCause()], Error: m.GetError()})
	}
	s.closeIfEmptyLocked(x)
	return &leaseholdv1.AttachResponse{Response: &leaseholdv1.AttachResponse_Released{Released: answer}}
}

// tokensLeft is what a report must leave of the tokens: a resource that shows a
// higher one is broken.
const tokensLeft = 1 << 20

// raiseLocked raises the counter above a token that was seen elsewhere.
func (s *Server) raiseLocked(seen fence.Token, by string) {
	if seen > s.token && seen < fence.MaxToken-tokensLeft {
		s.token = seen
		s.recordLocked(Event{Kind: KindTokenRaise, Token: seen, Worker: by})
	}
}
