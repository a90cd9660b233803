package controller

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// Stories are text files of blocks: commands, a line of dashes, and what they
// print, up to an empty line. Run with -update to rewrite what they print.
//
//	keyspace 12 fenced grace=20s delay=1s   (first; strict is the default)
//	worker a leaving restart drained cap=4 zone=z opened=-5s opens=3 gossip=dead id=x
//	standing a barred                       (and the same words as worker)
//	remove a                                (its partitions are unowned)
//	own a 0-3 5
//	drain 3 b deadline=+10s cause=join reserve
//	slot a 0-3 until=+30s reserved zone=z
//	suspect 3 failures=2 workers=a,b retry=+1s quarantined
//	cool 3 +60s          hold 3 +1s          lost 3 failed
//	ring                                    (of the workers that count)
//	restored +10s                           (nothing is granted before)
//	time +3s             unrest             (the set of workers has changed now)
//	plan                 step               plan apply
//	why 3                                   (who could have it, and what holds it where it is)
//	simulate +x +y:4 -a                     (workers that come and go)
func TestStories(t *testing.T) {
	files, err := filepath.Glob("testdata/stories/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no stories: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			src, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			golden(t, file, tell(t, string(src)))
		})
	}
}

// tell runs the commands of a story and returns it with what they print.
func tell(t *testing.T, src string) string {
	var out strings.Builder
	s := &story{}
	printed := false // skipping old output
	for line := range strings.Lines(src) {
		line = strings.TrimRight(line, "\n")
		switch {
		case printed && line != "":
			continue
		case line == "----":
			printed = true
			fmt.Fprintf(&out, "----\n%s", s.out.String())
			s.out.Reset()
			continue
		}
		printed = false
		fmt.Fprintln(&out, line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if err := s.do(strings.Fields(line)); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
	}
	return out.String()
}

type story struct {
	w        *world
	suspects []Suspect
	cool     map[uint32]state.Clock
	hold     map[uint32]state.Clock
	lost     []state.Cause
	coldFrom state.Clock
	restored state.Clock
	out      strings.Builder
}

func (s *story) do(f []string) error {
	w := s.w
	switch f[0] {
	case "keyspace":
		return s.keyspace(f[1:])
	case "worker":
		w.join(f[1], 0)
		return s.describe(f[1], f[2:])
	case "standing":
		w.changed = w.now
		return s.describe(f[1], f[2:])
	case "remove":
		w.remove(f[1])
	case "own":
		for _, p := range parts(f[2:]) {
			w.owners[p] = int32(w.find(f[1]))
			w.last++
			w.tokens[p] = w.last
		}
	case "drain":
		return s.drain(f[1:])
	case "slot":
		return s.slot(f[1:])
	case "suspect":
		return s.suspect(f[1:])
	case "cool", "hold":
		m := s.cool
		if f[0] == "hold" {
			m = s.hold
		}
		m[parts(f[1:2])[0]] = s.at(f[2])
	case "lost":
		for _, p := range parts(f[1 : len(f)-1]) {
			s.lost[p] = cause(f[len(f)-1])
		}
	case "ring":
		w.reRing()
	case "restored":
		s.restored = s.at(f[1])
	case "unrest":
		w.changed = w.now
	case "time":
		w.now = s.at(f[1])
	case "step":
		s.step()
	case "plan":
		s.plan(len(f) > 1)
	case "why":
		s.why(parts(f[1:])[0])
	case "simulate":
		return s.simulate(f[1:])
	default:
		return fmt.Errorf("unknown command")
	}
	return nil
}

func (s *story) at(d string) state.Clock {
	v, err := time.ParseDuration(strings.TrimPrefix(d, "+"))
	if err != nil {
		panic(err)
	}
	return s.w.now + v
}

func parts(words []string) (list []uint32) {
	for _, w := range words {
		a, b, both := strings.Cut(w, "-")
		lo, err := strconv.Atoi(a)
		if err != nil {
			panic(err)
		}
		hi := lo
		if both {
			if hi, err = strconv.Atoi(b); err != nil {
				panic(err)
			}
		}
		for ; lo <= hi; lo++ {
			list = append(list, uint32(lo))
		}
	}
	return list
}

func cause(word string) state.Cause {
	for c := state.CauseNone; c < 64; c++ {
		if c.String() == word {
			return c
		}
	}
	panic("unknown cause " + word)
}

func (s *story) keyspace(f []string) error {
	n, err := strconv.Atoi(f[0])
	if err != nil {
		return err
	}
	s.w = newWorld(n, 0)
	s.cool, s.hold = make(map[uint32]state.Clock), make(map[uint32]state.Clock)
	s.lost = make([]state.Cause, n)
	s.coldFrom, s.suspects, s.restored = s.w.now, nil, 0
	for _, o := range f[1:] {
		key, value, _ := strings.Cut(o, "=")
		switch key {
		case "fenced":
			s.w.settings.Takeover = state.Fenced
		case "grace":
			s.w.settings.RestartGrace = s.at(value) - s.w.now
		case "delay":
			s.w.settings.InitialDelay = s.at(value) - s.w.now
		default:
			return fmt.Errorf("unknown option %s", o)
		}
	}
	return nil
}

func (s *story) describe(id string, f []string) error {
	w := &s.w.workers[s.w.find(id)]
	for _, o := range f {
		key, value, _ := strings.Cut(o, "=")
		switch key {
		case "live":
			w.Standing, w.Restart, w.Drained = Live, false, false
		case "leaving":
			w.Standing = Leaving
		case "barred":
			w.Standing = Barred
		case "gone":
			w.Standing = Gone
		case "restart":
			w.Restart = true
		case "drained":
			w.Drained = true
		case "cap":
			n, err := strconv.Atoi(value)
			if err != nil {
				return err
			}
			w.Capacity = uint32(n)
		case "zone":
			w.Zone = value
		case "id": // last: from here on it goes by this name
			w.ID = value
		case "opened":
			w.Opened = s.at(value)
			w.Opens = []state.Clock{w.Opened}
		case "opens":
			w.Opens = []state.Clock{w.Opened - 2*time.Minute, w.Opened - time.Minute, w.Opened}
		case "gossip":
			w.Gossip = map[string]Verdict{"alive": Alive, "suspect": Suspected, "dead": Dead}[value]
			w.GossipUntil = s.w.now + s.w.settings.TTL
		default:
			return fmt.Errorf("unknown option %s", o)
		}
	}
	return nil
}

func (s *story) drain(f []string) error {
	p := parts(f[:1])[0]
	m := state.Move{Partition: p, Token: s.w.tokens[p], Started: s.w.now, Deadline: s.w.now + s.w.settings.HandoffTimeout, Cause: state.CauseBalance}
	for _, o := range f[1:] {
		key, value, both := strings.Cut(o, "=")
		switch {
		case key == "deadline":
			m.Deadline = s.at(value)
		case key == "cause":
			m.Cause = cause(value)
		case key == "reserve":
			m.Reserve = true
		case !both:
			m.Target = s.w.workers[s.w.find(key)].Session
		}
	}
	s.w.moves = append(s.w.moves, m)
	slices.SortFunc(s.w.moves, func(a, b state.Move) int { return int(a.Partition) - int(b.Partition) })
	return nil
}

func (s *story) slot(f []string) error {
	x := state.Slot{Worker: f[0]}
	for _, o := range f[1:] {
		key, value, _ := strings.Cut(o, "=")
		switch key {
		case "until":
			x.Until = s.at(value)
		case "reserved":
			x.Reserved = true
		case "zone":
			x.Zone = value
		default:
			x.Partitions = append(x.Partitions, parts([]string{o})...)
		}
	}
	s.w.slots = append(s.w.slots, x)
	return nil
}

func (s *story) suspect(f []string) error {
	p := parts(f[:1])[0]
	s.suspects = slices.DeleteFunc(s.suspects, func(x Suspect) bool { return x.Partition == p })
	x := Suspect{Suspect: state.Suspect{Partition: p}, Held: s.w.owners[p] >= 0, Since: s.w.now}
	for _, o := range f[1:] {
		key, value, _ := strings.Cut(o, "=")
		switch key {
		case "failures":
			x.Failures, _ = strconv.Atoi(value)
		case "workers":
			x.Workers = strings.Split(value, ",")
		case "retry":
			x.RetryAt = s.at(value)
		case "quarantined":
			x.Quarantined = true
		case "since":
			x.Since = s.at(value)
		default:
			return fmt.Errorf("unknown option %s", o)
		}
	}
	s.suspects = append(s.suspects, x)
	slices.SortFunc(s.suspects, func(a, b Suspect) int { return int(a.Partition) - int(b.Partition) })
	return nil
}

func (s *story) handoffs() Handoffs {
	return Handoffs{Now: s.w.now, Takeover: s.w.settings.Takeover, Moves: s.w.moves, Workers: s.w.workers}
}

func (s *story) step() {
	actions, wake := Step(s.handoffs())
	for _, a := range actions {
		fmt.Fprintf(&s.out, "%v %d, drained for %s", a.Kind, a.Move.Partition, s.name(a.Move.Target))
		if a.Kind != Retarget {
			fmt.Fprintf(&s.out, ", overdue by %v", a.Overdue)
		}
		fmt.Fprintln(&s.out)
	}
	s.end(len(actions) == 0, wake)
}

func (s *story) end(nothing bool, wake state.Clock) {
	if nothing {
		fmt.Fprintln(&s.out, "nothing")
	}
	if wake > 0 {
		fmt.Fprintf(&s.out, "look again in %v\n", wake-s.w.now)
	}
}

func (s *story) name(id state.SessionID) string {
	for _, w := range s.w.workers {
		if w.Session == id {
			return w.ID
		}
	}
	if id == 0 {
		return "nobody"
	}
	return "one that went"
}

func (s *story) input() Input {
	in := s.w.input()
	in.Suspects, in.Cool, in.Hold, in.Lost = s.suspects, s.cool, s.hold, s.lost
	in.LastJoin, in.ColdSince, in.Restored = s.w.changed, s.coldFrom, s.restored
	in.Actions, _ = Step(s.handoffs())
	return in
}

func (s *story) plan(apply bool) {
	in := s.input()
	o := Plan(in)
	lines := make(map[string][]uint32)
	var order []string
	add := func(p uint32, format string, args ...any) {
		key := fmt.Sprintf(format, args...)
		if _, ok := lines[key]; !ok {
			order = append(order, key)
		}
		lines[key] = append(lines[key], p)
	}
	for _, r := range o.Revokes {
		add(r.Partition, "revoke from %s (%v):", s.name(r.Session), r.Cause)
	}
	for _, g := range o.Grants {
		add(g.Partition, "grant to %s (%v):", s.name(g.Session), g.Cause)
	}
	for _, d := range o.Drains {
		reserve := ""
		if d.Reserve {
			reserve = ", keep it"
		}
		add(d.Partition, "drain %s for %s (%v%s):", s.w.workers[s.w.owners[d.Partition]].ID, s.name(d.Target), d.Cause, reserve)
	}
	for _, u := range o.Unowned {
		left := ""
		if u.Reason.Until > 0 {
			left = fmt.Sprintf(", %v more", u.Reason.Until-s.w.now)
		}
		add(u.Partition, "unowned (%s%s):", strings.TrimSpace(string(u.Reason.Code)+" "+u.Reason.Worker), left)
	}
	for _, key := range order {
		fmt.Fprintf(&s.out, "%s%s\n", key, ranges(lines[key]))
	}
	if o.Rest.Code != CodeNone {
		fmt.Fprintf(&s.out, "the rest: %s\n", o.Rest.Code)
	}
	if o.Wanted > 0 {
		fmt.Fprintf(&s.out, "still to move: %d\n", o.Wanted)
	}
	s.end(len(order) == 0 && o.Rest.Code == CodeNone, o.Wake)
	if apply {
		s.w.apply(o)
		for i := range s.suspects {
			if x := &s.suspects[i]; !x.Held && s.w.owners[x.Partition] >= 0 {
				x.Held, x.Since = true, s.w.now
			}
		}
	}
}

// ranges prints 1 2 3 7 as 1-3 7.
func ranges(list []uint32) string {
	var b strings.Builder
	for i := 0; i < len(list); {
		k := i
		for k+1 < len(list) && list[k+1] == list[k]+1 {
			k++
		}
		fmt.Fprintf(&b, " %d", list[i])
		if k > i {
			fmt.Fprintf(&b, "-%d", list[k])
		}
		i = k + 1
	}
	return b.String()
}
