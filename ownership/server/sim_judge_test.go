package server

import (
	"cmp"
	"slices"
	"time"

	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// judges are the promises of DESIGN.md §2, by number.
var judges = []struct {
	name string
	rule func(*evidence) ruling
}{
	{"promise 1: a guard accepts no smaller token", judgeGuard},
	{"promise 2: tokens only rise", judgeTokens},
	{"promise 2: a context has a token that was granted to it", judgeOrigin},
	{"promise 3: contexts of a strict partition exclude each other", judgeContexts},
	{"promise 3: unguarded writes to a strict partition never go back", judgeUnguarded},
	{"promise 4: accepted writes never overlap", judgeWrites},
	{"promise 5: no takeover before the TTL", judgeEarly},
	{"promise 5: takeover in time", judgeLate},
	{"promise 6: a leader change moves nothing", judgeLeader},
}

func judgeGuard(e *evidence) (r ruling) {
	seen := map[place]note{}
	for _, n := range e.notes {
		if n.kind != noteAccept {
			continue
		}
		at := place{n.keyspace, n.partition}
		if before, ok := seen[at]; ok {
			r.checked++
			if n.token < before.token {
				r.blame("%v\n  after %v", n, before)
			}
		}
		seen[at] = n
	}
	return r
}

// judgeWrites wants each token's accepted writes in one piece and by one
// process.
func judgeWrites(e *evidence) (r ruling) {
	owner := map[uint64]int{}
	last := map[place]uint64{}
	over := map[uint64]bool{}
	for _, n := range e.notes {
		if n.kind != noteAccept {
			continue
		}
		at := place{n.keyspace, n.partition}
		r.checked++
		if p, ok := owner[n.token]; ok && p != n.process {
			r.blame("%v: token also used by process %d", n, p)
		}
		owner[n.token] = n.process
		if over[n.token] {
			r.blame("%v: after writes of a later owner", n)
		}
		if l := last[at]; l != 0 && l != n.token {
			over[l] = true
		}
		last[at] = n.token
	}
	return r
}

func judgeTokens(e *evidence) (r ruling) {
	var last *state.Event
	for i := range e.ledger {
		x := &e.ledger[i]
		if x.Kind != state.KindGrant {
			continue
		}
		if last != nil {
			r.checked++
			if x.Token <= last.Token {
				r.blame("index %d grants token %d after index %d granted %d", x.Index, x.Token, last.Index, last.Token)
			}
		}
		last = x
	}
	return r
}

// judgeOrigin ties what workers saw to what the log says.
func judgeOrigin(e *evidence) (r ruling) {
	granted := map[uint64]*state.Event{}
	for i := range e.ledger {
		if x := &e.ledger[i]; x.Kind == state.KindGrant {
			granted[uint64(x.Token)] = x
		}
	}
	used := map[uint64]bool{}
	for _, n := range e.notes {
		if n.kind != noteStart {
			continue
		}
		r.checked++
		x := granted[n.token]
		switch {
		case x == nil:
			r.blame("%v: never granted", n)
		case e.names[x.Keyspace] != n.keyspace || x.Partition != n.partition || e.process[x.Session] != n.process:
			r.blame("%v: granted for %s/%d to process %d", n, e.names[x.Keyspace], x.Partition, e.process[x.Session])
		case used[n.token]:
			r.blame("%v: a second context under one token", n)
		case n.at < e.when(x)-time.Millisecond: // the ledger has milliseconds
			r.blame("%v: before its grant at %v", n, e.when(x))
		}
		used[n.token] = true
	}
	return r
}

// span is how long a context was live.
type span struct {
	note
	until time.Duration
	over  bool
}

// spans pairs starts and ends. A killed process's contexts end with it. Those
// of a stopped process end at their deadline, if they do end when it goes on:
// nobody can end them in between.
func (e *evidence) spans() []span {
	var out []span
	open := map[uint64]int{}
	acked := map[int]time.Duration{}   // last acknowledged, when sent
	stopped := map[int]time.Duration{} // since
	type clip struct{ until, resumed time.Duration }
	clips := map[uint64]clip{}
	for _, n := range e.notes {
		switch n.kind {
		case noteStart:
			open[n.token] = len(out)
			out = append(out, span{note: n})
		case noteEnd:
			if i, ok := open[n.token]; ok && !out[i].over {
				out[i].until, out[i].over = n.at, true
				// A worker looks at its clock at least every 50 ms when its
				// margin is 250 ms.
				if c, ok := clips[n.token]; ok && n.at <= c.resumed+100*time.Millisecond {
					out[i].until = max(min(c.until, n.at), out[i].at)
				}
				delete(open, n.token)
			}
		case noteCrash:
			for t, i := range open {
				if out[i].process == n.process {
					out[i].until, out[i].over = n.at, true
					if since, ok := stopped[n.process]; ok { // killed while stopped
						out[i].until = max(min(n.at, max(since, acked[n.process]+e.least())), out[i].at)
					}
					delete(open, t)
				}
			}
		case noteAck:
			acked[n.process] = max(acked[n.process], n.sent)
		case notePause:
			stopped[n.process] = n.at
		case noteResume:
			deadline := max(stopped[n.process], acked[n.process]+e.least())
			for t, i := range open {
				if out[i].process == n.process && deadline < n.at {
					clips[t] = clip{deadline, n.at}
				}
			}
			delete(stopped, n.process)
		}
	}
	for _, i := range open { // until the end of the run
		out[i].until = e.notes[len(e.notes)-1].at
		if p := out[i].process; stopped[p] != 0 {
			out[i].until = max(out[i].at, stopped[p], acked[p]+e.least())
		}
	}
	return out
}

func judgeContexts(e *evidence) (r ruling) {
	by := map[place][]span{}
	for _, s := range e.spans() {
		if e.strict[s.keyspace] {
			at := place{s.keyspace, s.partition}
			by[at] = append(by[at], s)
		}
	}
	for _, spans := range by {
		slices.SortFunc(spans, func(a, b span) int { return cmp.Compare(a.at, b.at) })
		var longest *span
		for i := range spans {
			s := &spans[i]
			if longest != nil {
				r.checked++
				if s.at < longest.until {
					r.blame("%v\n  while %v is live until %.3fs", s.note, longest.note, longest.until.Seconds())
				}
			}
			if longest == nil || s.until > longest.until {
				longest = s
			}
		}
	}
	return r
}

// judgeUnguarded looks at the log of a resource without a guard. Only a
// process that had been stopped may have written late.
func judgeUnguarded(e *evidence) (r ruling) {
	stopped := map[int]bool{}
	seen := map[place]note{}
	for _, n := range e.notes {
		switch n.kind {
		case notePause:
			stopped[n.process] = true
		case noteAppend:
			at := place{n.keyspace, n.partition}
			if !e.strict[n.keyspace] || stopped[n.process] {
				continue
			}
			if before, ok := seen[at]; ok {
				r.checked++
				if n.token < before.token {
					r.blame("%v\n  after %v", n, before)
				}
			}
			seen[at] = n
		}
	}
	return r
}
