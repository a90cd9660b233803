package controller

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestJudge(t *testing.T) {
	const ttl = 10 * time.Second
	ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
	for name, c := range map[string]struct {
		signs Signs
		want  Judgement
	}{
		"in touch": {
			Signs{TTL: ttl, Gossip: Alive, Silent: ms(2000)}, Judgement{Wait: ms(3250)}},
		"stream just broke: ask gossip at once, decide at 200 ms": {
			Signs{TTL: ttl, Gossip: Alive, Broken: true, BrokenFor: ms(1)}, Judgement{Probe: true, Wait: ms(199)}},
		"probe unanswered, stream might still come back": {
			Signs{TTL: ttl, Gossip: Alive, Broken: true, BrokenFor: ms(150), Probed: true, ProbedFor: ms(10)}, Judgement{Wait: ms(50)}},
		"probe unanswered, stream did not come back": {
			Signs{TTL: ttl, Gossip: Alive, Broken: true, BrokenFor: ms(200), Probed: true, ProbedFor: ms(60)}, Judgement{Dead: true}},
		"table says dead, stream did not come back": {
			Signs{TTL: ttl, Gossip: Dead, Broken: true, BrokenFor: ms(200)}, Judgement{Dead: true}},
		"probe answered: the process lives, ask again later": {
			Signs{TTL: ttl, Gossip: Alive, Broken: true, BrokenFor: ms(400), Probed: true, Answered: true, ProbedFor: ms(100)}, Judgement{Wait: ms(1000)}},
		"probe answered a second ago": {
			Signs{TTL: ttl, Gossip: Alive, Broken: true, BrokenFor: ms(1400), Probed: true, Answered: true, ProbedFor: ms(1000)}, Judgement{Probe: true, Wait: ms(1000)}},
		"dead in gossip, but heard of a moment ago": {
			Signs{TTL: ttl, Gossip: Dead, Silent: ms(1000)}, Judgement{Wait: ms(4250)}},
		"two keep-alives missing and dead in gossip": {
			Signs{TTL: ttl, Gossip: Dead, Silent: ms(5250)}, Judgement{Dead: true}},
		"two keep-alives missing, gossip sees it alive": {
			Signs{TTL: ttl, Gossip: Alive, Silent: ms(5250)}, Judgement{Probe: true, Wait: ms(1000)}},
		"suspected is not dead": {
			Signs{TTL: ttl, Gossip: Suspected, Broken: true, BrokenFor: ms(300), Probed: true, Answered: true}, Judgement{Wait: ms(1000)}},
		"no gossip: wait for the TTL": {
			Signs{TTL: ttl, Gossip: Unknown, Broken: true, BrokenFor: ms(5000), Silent: ms(9000)}, Judgement{}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Judge(c.signs); got != c.want {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}

// Whatever else is known, one sign alone never makes a worker dead.
func TestOneSignAloneNeverKills(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := func(name string) time.Duration {
			return time.Duration(rapid.Int64Range(0, int64(20*time.Second)).Draw(t, name))
		}
		s := Signs{
			TTL: 10 * time.Second, Broken: rapid.Bool().Draw(t, "broken"), BrokenFor: d("broken for"), Silent: d("silent"),
			Gossip: Verdict(rapid.IntRange(0, 3).Draw(t, "gossip")),
			Probed: rapid.Bool().Draw(t, "probed"), Answered: rapid.Bool().Draw(t, "answered"), ProbedFor: d("probed for"),
		}
		contact := s.Broken && s.BrokenFor >= 200*time.Millisecond || s.Silent >= 5*time.Second
		gossip := s.Gossip != Unknown && (s.Gossip == Dead || s.Probed && !s.Answered)
		if j := Judge(s); j.Dead && !(contact && gossip) {
			t.Fatalf("%+v is judged dead", s)
		}
	})
}
