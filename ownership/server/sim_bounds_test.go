package server

import (
	"time"

	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// Slack of the judges: clocks of the simulation run up to 0.4 % wrong, and the
// ledger's times are in milliseconds and those of the moment of proposing.
const (
	simRateError = 0.004
	simTick      = 2 * time.Millisecond
)

// least is the TTL as clocks of the simulation may measure it.
func (e *evidence) least() time.Duration {
	return time.Duration(float64(e.pace.ttl) * (1 - 2*simRateError))
}

// judgeEarly holds every expiry of a session against the last keep-alive that
// its worker had acknowledged.
func judgeEarly(e *evidence) (r ruling) {
	acked := map[int]time.Duration{}
	i := 0
	for j := range e.ledger {
		x := &e.ledger[j]
		if x.Kind != state.KindSessionExpire {
			continue
		}
		at := e.when(x)
		for ; i < len(e.notes) && e.notes[i].at <= at; i++ {
			if n := e.notes[i]; n.kind == noteAck {
				acked[n.process] = max(acked[n.process], n.sent)
			}
		}
		sent, ok := acked[e.process[x.Session]]
		if !ok {
			continue // killed before its first keep-alive
		}
		r.checked++
		least := sent + e.least() - simTick
		if at < least {
			r.blame("session %d of process %d expired at %.3fs, last keep-alive sent at %.3fs", x.Session, e.process[x.Session], at.Seconds(), sent.Seconds())
		}
	}
	return r
}

// calmCrashes are the kills of a worker with nothing else going on but, maybe,
// leaders being killed too.
func (e *evidence) calm() (spans [][2]int) {
	from := -1
	for i, n := range e.notes {
		if n.kind == noteCalm {
			if n.what == "begin" {
				from = i
			} else if from >= 0 {
				spans = append(spans, [2]int{from, i})
				from = -1
			}
		}
	}
	return spans
}

// judgeLate wants every partition of a worker that was killed in a calm granted
// to another within TTL + 1 s (fenced: 1 s) and an election per leader killed.
func judgeLate(e *evidence) (r ruling) {
	for _, c := range e.calm() {
		notes := e.notes[c[0]:c[1]]
		elections := time.Duration(0)
		for _, n := range notes {
			if n.kind == noteKilled {
				elections += e.pace.elected
			}
		}
		for _, n := range notes {
			if n.kind != noteCrash {
				continue
			}
			for token, at := range e.held(n.at, n.process) {
				r.checked++
				bound := n.at + time.Second + elections + simTick
				if e.strict[at.keyspace] || elections > 0 || !e.pace.gossip {
					bound += time.Duration(float64(e.pace.ttl) * (1 + 2*simRateError))
				}
				g, ok := e.next(at, token)
				if !ok || g > bound {
					r.blame("%s/%d of process %d, killed at %.3fs, granted at %.3fs (%v), bound %.3fs",
						at.keyspace, at.partition, n.process, n.at.Seconds(), g.Seconds(), ok, bound.Seconds())
				}
			}
		}
	}
	return r
}

// held are the leases of a process at a time, by token, from the ledger.
func (e *evidence) held(at time.Duration, process int) map[uint64]place {
	out := map[uint64]place{}
	for i := range e.ledger {
		x := &e.ledger[i]
		if e.when(x) > at {
			break
		}
		switch x.Kind {
		case state.KindGrant:
			if e.process[x.Session] == process {
				out[uint64(x.Token)] = place{e.names[x.Keyspace], x.Partition}
			}
		case state.KindRelease, state.KindRevoke, state.KindExpire:
			delete(out, uint64(x.Token))
		}
	}
	return out
}

// next is when a partition was first granted after a token.
func (e *evidence) next(at place, token uint64) (time.Duration, bool) {
	for i := range e.ledger {
		x := &e.ledger[i]
		if x.Kind == state.KindGrant && uint64(x.Token) > token && x.Partition == at.partition && e.names[x.Keyspace] == at.keyspace {
			return e.when(x), true
		}
	}
	return 0, false
}

// judgeLeader wants no lease to change in a calm in which only leaders were
// killed, and no context to end.
func judgeLeader(e *evidence) (r ruling) {
	for _, c := range e.calm() {
		killed, crashed := 0, false
		for _, n := range e.notes[c[0]:c[1]] {
			killed += btoi(n.kind == noteKilled)
			crashed = crashed || n.kind == noteCrash
		}
		if killed == 0 || crashed {
			continue
		}
		r.checked++
		from, to := e.notes[c[0]].at, e.notes[c[1]].at
		for _, n := range e.notes[c[0]:c[1]] {
			if n.kind == noteStart || n.kind == noteEnd {
				r.blame("%v: with only a leader killed", n)
			}
		}
		for i := range e.ledger {
			x := &e.ledger[i]
			if at := e.when(x); at < from || at > to {
				continue
			}
			switch x.Kind {
			case state.KindGrant, state.KindRelease, state.KindRevoke, state.KindExpire, state.KindDrain, state.KindSessionExpire:
				r.blame("index %d: kind %d cause %d of %s/%d with only a leader killed", x.Index, x.Kind, x.Cause, e.names[x.Keyspace], x.Partition)
			}
		}
	}
	return r
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}
