package server

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// honest is a small true history: process 1 gets a partition, is killed, and
// process 2 takes over after the TTL; and then, in a calm, a leader is killed.
func honest() *evidence {
	began := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	event := func(at time.Duration, kind state.Kind, session, token uint64) state.Event {
		return state.Event{
			Wall: began.Add(at).UnixMilli(), Kind: kind, Session: state.SessionID(session), Token: state.Token(token), Keyspace: 1, Partition: 7,
		}
	}
	n := func(at time.Duration, kind noteKind, process int, token uint64) note {
		return note{at: at, kind: kind, process: process, keyspace: "orders", partition: 7, token: token}
	}
	ack := n(9*time.Second, noteAck, 1, 0)
	ack.sent = 9 * time.Second
	calm := func(at time.Duration, what string) note { return note{at: at, kind: noteCalm, what: what} }
	return &evidence{
		began: began, pace: simQuick, strict: map[string]bool{"orders": true},
		names: map[state.KeyspaceID]string{1: "orders"}, process: map[state.SessionID]int{11: 1, 12: 2},
		ledger: []state.Event{
			event(time.Second, state.KindGrant, 11, 100),
			event(13100*time.Millisecond, state.KindExpire, 11, 100),
			event(13100*time.Millisecond, state.KindSessionExpire, 11, 0),
			event(13100*time.Millisecond, state.KindGrant, 12, 101),
		},
		notes: []note{
			n(1100*time.Millisecond, noteAccept, 1, 100),
			n(1100*time.Millisecond, noteStart, 1, 100),
			n(2*time.Second, noteAppend, 1, 100),
			n(2*time.Second, noteAccept, 1, 100),
			ack,
			calm(9*time.Second, "begin"),
			n(9500*time.Millisecond, noteCrash, 1, 0),
			n(13200*time.Millisecond, noteAccept, 2, 101),
			n(13200*time.Millisecond, noteStart, 2, 101),
			n(14*time.Second, noteAppend, 2, 101),
			n(14*time.Second, noteAccept, 2, 101),
			calm(15*time.Second, "end"),
			calm(16*time.Second, "begin"),
			{at: 16 * time.Second, kind: noteKilled},
			calm(20*time.Second, "end"),
		},
	}
}

// edit changes the first note of a kind at or after a time.
func (e *evidence) edit(kind noteKind, from time.Duration, f func(*note)) {
	i := slices.IndexFunc(e.notes, func(n note) bool { return n.kind == kind && n.at >= from })
	f(&e.notes[i])
	slices.SortStableFunc(e.notes, func(a, b note) int { return int(a.at - b.at) })
}

func (e *evidence) insert(n note) {
	n.keyspace, n.partition = "orders", 7
	e.notes = append(e.notes, n)
	slices.SortStableFunc(e.notes, func(a, b note) int { return int(a.at - b.at) })
}

func TestJudgesPassAnHonestHistory(t *testing.T) {
	for _, j := range judges {
		if r := j.rule(honest()); r.checked == 0 || len(r.wrong) > 0 {
			t.Errorf("%s: %d comparisons, %v", j.name, r.checked, r.wrong)
		}
	}
}

// Each judge must find the one lie that breaks its promise.
func TestJudgesFindADoctoredHistory(t *testing.T) {
	late := 14500 * time.Millisecond
	lies := map[string]struct {
		judge string // part of its name
		tell  func(e *evidence)
	}{
		"smaller token accepted":       {"promise 1", func(e *evidence) { e.insert(note{at: late, kind: noteAccept, process: 2, token: 99}) }},
		"token granted twice":          {"tokens only rise", func(e *evidence) { e.ledger[3].Token = 100 }},
		"token goes back":              {"tokens only rise", func(e *evidence) { e.ledger[3].Token = 50 }},
		"context without a grant":      {"was granted", func(e *evidence) { e.insert(note{at: late, kind: noteStart, process: 2, token: 102}) }},
		"context under another's":      {"was granted", func(e *evidence) { e.process[12] = 3 }},
		"context before its grant":     {"was granted", func(e *evidence) { e.edit(noteStart, 0, func(n *note) { n.at = time.Millisecond }) }},
		"two contexts of one grant":    {"was granted", func(e *evidence) { e.insert(note{at: late, kind: noteStart, process: 2, token: 101}) }},
		"contexts overlap":             {"exclude each other", func(e *evidence) { e.edit(noteCrash, 0, func(n *note) { n.at = 13300 * time.Millisecond }) }},
		"write after the new owner's":  {"unguarded writes", func(e *evidence) { e.insert(note{at: late, kind: noteAppend, process: 1, token: 100}) }},
		"writes overlap":               {"promise 4", func(e *evidence) { e.insert(note{at: late, kind: noteAccept, process: 1, token: 100}) }},
		"two write under one token":    {"promise 4", func(e *evidence) { e.insert(note{at: late, kind: noteAccept, process: 1, token: 101}) }},
		"expiry before the TTL":        {"no takeover before", func(e *evidence) { e.edit(noteAck, 0, func(n *note) { n.sent = 9300 * time.Millisecond }) }},
		"takeover too late":            {"takeover in time", func(e *evidence) { e.ledger[3].Wall += 2000 }},
		"no takeover":                  {"takeover in time", func(e *evidence) { e.ledger = e.ledger[:3] }},
		"fenced takeover after TTL":    {"takeover in time", func(e *evidence) { e.strict = nil }},
		"lease moved with the leader":  {"promise 6", func(e *evidence) { e.ledger[3].Wall += 4000 }},
		"context ends with the leader": {"promise 6", func(e *evidence) { e.insert(note{at: 17 * time.Second, kind: noteEnd, process: 2, token: 101}) }},
	}
	accused := map[string]bool{}
	for name, lie := range lies {
		t.Run(name, func(t *testing.T) {
			e := honest()
			lie.tell(e)
			for _, j := range judges {
				if strings.Contains(j.name, lie.judge) {
					accused[j.name] = true
					if r := j.rule(e); len(r.wrong) == 0 {
						t.Errorf("%s found nothing", j.name)
					}
				}
			}
		})
	}
	for _, j := range judges {
		if !accused[j.name] {
			t.Errorf("%s: no lie is told to it", j.name)
		}
	}
}

// A process that was stopped may have had its context for longer than its
// lease, but not for longer than it takes to notice, and not before its
// deadline.
func TestJudgeOfContextsKnowsStoppedProcesses(t *testing.T) {
	cases := map[string]struct {
		resumed, ended time.Duration
		starts         time.Duration // of the next owner
		guilty         bool
	}{
		"next owner after the deadline":  {20 * time.Second, 20050 * time.Millisecond, 13200 * time.Millisecond, false},
		"next owner before the deadline": {20 * time.Second, 20050 * time.Millisecond, 12 * time.Second, true},
		"went on working":                {20 * time.Second, 21 * time.Second, 13200 * time.Millisecond, true},
		"stopped too shortly":            {12 * time.Second, 13500 * time.Millisecond, 13200 * time.Millisecond, true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			e := honest()
			e.notes = slices.DeleteFunc(e.notes, func(n note) bool { return n.kind == noteCrash })
			e.insert(note{at: 9500 * time.Millisecond, kind: notePause, process: 1})
			e.insert(note{at: c.resumed, kind: noteResume, process: 1})
			e.insert(note{at: c.ended, kind: noteEnd, process: 1, token: 100})
			e.edit(noteStart, 10*time.Second, func(n *note) { n.at = c.starts })
			if r := judgeContexts(e); (len(r.wrong) > 0) != c.guilty {
				t.Errorf("found %v", r.wrong)
			}
		})
	}
}
