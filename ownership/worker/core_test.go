package worker

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/fence"
	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"pgregory.net/rapid"
)

// hand drives a core step by step: time is a number, and what the core wants
// done is done by the test or not at all.
type hand struct {
	c       *core
	clock   time.Duration
	index   uint64
	sent    []*leaseholdv1.AttachRequest
	started []*Lease
	claims  []*Lease
	ended   map[*Lease]error
}

func (h *hand) Now() time.Duration { return h.clock }

func (h *hand) now() reading { return reading{boot: h.clock, wall: int64(h.clock)} }

func newHand(mode leaseholdv1.Takeover, guard fence.Guard) *hand {
	h := &hand{ended: map[*Lease]error{}}
	t := &tenure{clock: h, wall: func() time.Time { return time.Unix(0, int64(h.clock)) }}
	ids := uint64(0)
	h.c = newCore("w1", 0, time.Minute, t, func() float64 { return 0.5 }, func() uint64 { ids++; return ids })
	h.c.add(&run{keyspace: "orders", guard: guard, over: make(chan struct{})})
	h.open(mode)
	return h
}

func (h *hand) open(mode leaseholdv1.Takeover) {
	h.c.opened(&leaseholdv1.SessionOpened{
		SessionId: h.c.session.id, TtlMs: 10_000, ClusterId: "c",
		Keyspaces: []*leaseholdv1.KeyspaceJoined{{KeyspaceId: 1, Name: "orders", Partitions: 8, TtlMs: 10_000, Takeover: mode}},
	}, h.now(), h.now())
	h.step()
}

// step ends a step and takes its effects.
func (h *hand) step() {
	h.c.tick(h.now())
	o := &h.c.out
	h.sent = append(h.sent, o.send...)
	h.started = append(h.started, o.start...)
	h.claims = append(h.claims, o.claim...)
	for _, x := range o.end {
		h.ended[x.lease] = x.lease.slot.cause
	}
	h.c.reset()
}

func (h *hand) grant(p uint32, token uint64) {
	h.index++
	h.c.changes(&leaseholdv1.LeaseChanges{Index: h.index, Granted: []*leaseholdv1.Leases{
		{KeyspaceId: 1, Partitions: []uint32{p}, Tokens: []uint64{token}}}}, h.now())
	h.step()
}

func (h *hand) list(index uint64, leases map[uint32]uint64) {
	g := &leaseholdv1.Leases{KeyspaceId: 1}
	for p := range uint32(8) {
		if token := leases[p]; token != 0 {
			g.Partitions, g.Tokens = append(g.Partitions, p), append(g.Tokens, token)
		}
	}
	h.c.list(&leaseholdv1.LeaseList{Index: index, Granted: []*leaseholdv1.Leases{g}}, h.now())
	h.step()
}

// ack answers the newest keep-alive.
func (h *hand) ack() {
	s := &h.c.session
	h.c.acked(&leaseholdv1.KeepAliveResponse{SessionId: s.id, Seq: s.seq, TtlMs: 10_000}, h.now())
	h.step()
}

func (h *hand) advance(d time.Duration) {
	h.clock += d
	h.step()
}

// releases lists what was sent back as partition:token:cause.
func (h *hand) releases() (out []string) {
	for _, m := range h.sent {
		r := m.GetRelease()
		for _, l := range r.GetLeases() {
			out = append(out, fmt.Sprintf("%d:%d:%s", l.GetPartition(), l.GetToken(), r.GetCause().String()[len("RELEASE_CAUSE_"):]))
		}
	}
	return out
}

const (
	strict = leaseholdv1.Takeover_TAKEOVER_STRICT
	fenced = leaseholdv1.Takeover_TAKEOVER_FENCED
)

func TestLateAndRepeatedGrantsAreIgnored(t *testing.T) {
	h := newHand(strict, nil)
	h.grant(1, 20)
	h.grant(1, 20) // twice
	h.grant(1, 19) // late
	if len(h.started) != 1 || h.started[0].token != 20 {
		t.Fatalf("started %d handlers", len(h.started))
	}
	h.c.returned(h.started[0], result{}, h.now())
	h.step()
	h.grant(1, 20) // the list of a stream that was behind
	if len(h.started) != 1 {
		t.Error("a token was run again")
	}
	if got := fmt.Sprint(h.releases()); got != "[1:20:YIELD]" {
		t.Errorf("released %s", got)
	}
	h.grant(1, 21)
	if len(h.started) != 2 {
		t.Error("a new token was not run")
	}
}

func TestListEndsWhatItDoesNotHave(t *testing.T) {
	h := newHand(strict, nil)
	h.grant(1, 20)
	h.grant(2, 21)
	h.list(h.index, map[uint32]uint64{2: 21})
	if len(h.ended) != 1 || h.ended[h.started[0]] != ErrRevoked {
		t.Errorf("ended %v", h.ended)
	}
	// A list from before the grant says nothing about it.
	h.grant(3, 22)
	h.list(h.index-1, map[uint32]uint64{2: 21})
	if h.started[2].ended() != nil {
		t.Error("a list older than the grant ended it")
	}
	// What the servers still believe in after it was given up goes back again.
	h.list(h.index, map[uint32]uint64{1: 20, 2: 21, 3: 22})
	if got := fmt.Sprint(h.releases()); got != "[1:20:ENDED]" {
		t.Errorf("released %s", got)
	}
}

func TestReleasesAreRepeatedUntilConfirmed(t *testing.T) {
	h := newHand(strict, nil)
	h.grant(1, 20)
	h.c.returned(h.started[0], result{}, h.now())
	h.step()
	h.c.detached()
	h.open(strict)
	if got := fmt.Sprint(h.releases()); got != "[1:20:YIELD 1:20:YIELD]" {
		t.Errorf("released %s", got)
	}
	h.c.released(&leaseholdv1.LeasesReleased{Request: h.sent[len(h.sent)-1].GetRelease().GetRequest()})
	for request := range h.c.pending {
		h.c.released(&leaseholdv1.LeasesReleased{Request: request})
	}
	h.c.detached()
	h.open(strict)
	if n := len(h.releases()); n != 2 {
		t.Errorf("%d releases after the confirmation", n-2)
	}
}

func TestLateAcknowledgementProvesOnlyItsSend(t *testing.T) {
	h := newHand(strict, nil)
	h.grant(1, 20)
	h.advance(2500 * time.Millisecond) // a keep-alive goes out
	h.clock += 6900 * time.Millisecond // and its answer takes most of the TTL
	h.ack()
	if want := 2500*time.Millisecond + 10*time.Second - 500*time.Millisecond; h.c.session.until != want {
		t.Errorf("deadline %v, want %v", h.c.session.until, want)
	}
	before := h.c.session.until
	s := &h.c.session
	h.c.acked(&leaseholdv1.KeepAliveResponse{SessionId: s.id, Seq: 1, TtlMs: 10_000}, h.now()) // twice
	h.c.acked(&leaseholdv1.KeepAliveResponse{SessionId: s.id, Seq: 99, TtlMs: 10_000}, h.now())
	h.c.acked(&leaseholdv1.KeepAliveResponse{SessionId: s.id + 1, Seq: s.seq, TtlMs: 10_000}, h.now())
	if s.until != before {
		t.Error("an acknowledgement of nothing that is out moved the deadline")
	}
}

func TestTTLGoesDownWithAKeyspaceOfShorterTTL(t *testing.T) {
	h := newHand(strict, nil)
	before := h.c.session.until
	h.c.joined(&leaseholdv1.KeyspaceJoined{KeyspaceId: 2, Name: "mails", Partitions: 4, TtlMs: 4_000}, h.now())
	h.step()
	if h.c.session.ttl != 4*time.Second || h.c.session.nextAt != time.Second {
		t.Errorf("ttl %v, next keep-alive at %v", h.c.session.ttl, h.c.session.nextAt)
	}
	if h.c.session.until != before {
		t.Error("the deadline moved with no acknowledgement")
	}
}

// Any order of messages, returns and time: the promises about handlers hold
// after each step.
func TestCoreKeepsItsPromises(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		mode := rapid.SampledFrom([]leaseholdv1.Takeover{strict, fenced}).Draw(t, "mode")
		var guard fence.Guard
		if rapid.Bool().Draw(t, "guarded") {
			guard = fence.NewMemory(nil)
		}
		h := newHand(mode, guard)
		token := uint64(100)
		truth := map[uint32]uint64{} // what the servers grant
		running := map[uint32]*Lease{}
		ran := map[uint32]fence.Token{}
		check := func() {
			for _, l := range h.started {
				p := l.partition
				if other := running[p]; other != nil {
					t.Fatalf("two handlers of partition %d: tokens %d and %d", p, other.token, l.token)
				}
				if l.token <= ran[p] {
					t.Fatalf("token %d of partition %d run after %d", l.token, p, ran[p])
				}
				if h.clock >= h.c.session.until {
					t.Fatalf("started at %v, after the deadline %v", h.clock, h.c.session.until)
				}
				running[p], ran[p] = l, l.token
			}
			h.started = nil
			live, hash := 0, uint64(0)
			for _, sp := range h.c.spaces {
				for p, l := range sp.held {
					if l.slot.live {
						live++
						hash ^= leaseholdv1.LeaseHash(sp.id, p, uint64(l.token))
					}
				}
			}
			if live != h.c.live || hash != h.c.hash {
				t.Fatalf("counts %d live, hash %x; it is %d, %x", h.c.live, h.c.hash, live, hash)
			}
			if h.c.running != len(running) {
				t.Fatalf("counts %d running; it is %d", h.c.running, len(running))
			}
			if h.c.session.opened && h.clock >= h.c.session.until {
				for _, l := range running {
					if l.ended() == nil {
						t.Fatalf("context of partition %d lives after the deadline", l.partition)
					}
				}
			}
		}
		partition := rapid.Uint32Range(0, 7)
		t.Repeat(map[string]func(*rapid.T){
			"": func(*rapid.T) { check() },
			"grant": func(t *rapid.T) {
				p := partition.Draw(t, "p")
				token++
				truth[p] = token
				h.grant(p, token)
			},
			"late grant": func(t *rapid.T) {
				h.grant(partition.Draw(t, "p"), rapid.Uint64Range(1, token).Draw(t, "token"))
			},
			"drain": func(t *rapid.T) {
				p := partition.Draw(t, "p")
				h.c.changes(&leaseholdv1.LeaseChanges{Index: h.index, Drain: []*leaseholdv1.Leases{
					{KeyspaceId: 1, Partitions: []uint32{p}, Tokens: []uint64{truth[p]}, DrainMs: 3000}}}, h.now())
				h.step()
			},
			"revoke": func(t *rapid.T) {
				p := partition.Draw(t, "p")
				h.c.changes(&leaseholdv1.LeaseChanges{Index: h.index, Revoked: []*leaseholdv1.Leases{
					{KeyspaceId: 1, Partitions: []uint32{p}, Tokens: []uint64{truth[p]}}}}, h.now())
				delete(truth, p)
				h.step()
			},
			"list": func(*rapid.T) { h.list(h.index, truth) },
			"claim": func(t *rapid.T) {
				for _, l := range h.claims {
					var stale *fence.StaleError
					if rapid.IntRange(0, 9).Draw(t, "refuse") == 0 {
						stale = &fence.StaleError{Stamp: fence.Stamp{Token: l.token}, Current: l.token + 1}
					}
					h.c.claimed(l, stale, h.now())
				}
				h.claims = nil
				h.step()
			},
			"return": func(t *rapid.T) {
				p := partition.Draw(t, "p")
				l := running[p]
				if l == nil {
					return
				}
				delete(running, p)
				err := rapid.SampledFrom([]error{nil, errors.New("no disk"), ErrExpired, ErrUnconfirmed, fence.ErrStale}).Draw(t, "err")
				h.c.returned(l, resultOf(l, err), h.now())
				h.step()
			},
			"time": func(t *rapid.T) {
				h.advance(time.Duration(rapid.IntRange(1, 4000).Draw(t, "ms")) * time.Millisecond)
			},
			"ack":    func(*rapid.T) { h.ack() },
			"detach": func(*rapid.T) { h.c.detached(); h.step() },
			"attach": func(*rapid.T) { h.open(mode) },
			"gone": func(*rapid.T) {
				h.c.gone(ErrExpired, h.now())
				clear(truth)
				h.step()
				h.open(mode)
			},
		})
	})
}

// A hundred thousand grants cost the loop well under a microsecond each when
// nothing has to be done for them.
func BenchmarkGrants(b *testing.B) {
	const n = 1000
	g := &leaseholdv1.Leases{KeyspaceId: 1, Partitions: make([]uint32, n), Tokens: make([]uint64, n)}
	h := newHand(strict, nil)
	h.c.spaces[1].partitions = 100_000
	h.c.spaces[1].highest = make(map[uint32]fence.Token, n)
	var token uint64
	b.ReportAllocs()
	for b.Loop() {
		for i := range n {
			token++
			g.Partitions[i], g.Tokens[i] = uint32(i*97), token
		}
		h.c.changes(&leaseholdv1.LeaseChanges{Index: 1, Granted: []*leaseholdv1.Leases{g}}, h.now())
		h.c.tick(h.now())
		b.StopTimer()
		for _, l := range h.c.out.start {
			h.c.returned(l, result{}, h.now())
		}
		h.c.tick(h.now())
		h.c.reset()
		clear(h.c.pending)
		clear(h.c.asked)
		b.StartTimer()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/grant")
}
