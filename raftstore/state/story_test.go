package state

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "rewrite the expected output of the stories")

// TestStories runs the text traces of testdata. A trace is a list of cases:
//
//	commands, one a line; all of a case are one log entry
//	----
//	what they answered, and the events they caused
//
// separated by empty lines. Lines that begin with # are comments. "show",
// "term N", "wait D" (ticks, an entry each), "restart" (from a snapshot) and
// "rebase first=N" are not commands. See parseCommand for the words.
func TestStories(t *testing.T) {
	paths, err := filepath.Glob("testdata/*.story")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no stories: %v", err)
	}
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".story"), func(t *testing.T) {
			source, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			want := string(source)
			got := runStory(t, want)
			if *update {
				if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			} else if got != want {
				t.Errorf("the story went differently (-update rewrites it):\n%s", firstDifference(want, got))
			}
		})
	}
}

func firstDifference(want, got string) string {
	w, g := strings.Split(want, "\n"), strings.Split(got, "\n")
	for i := range min(len(w), len(g)) {
		if w[i] != g[i] {
			return fmt.Sprintf("line %d\n want: %s\n  got: %s", i+1, w[i], g[i])
		}
	}
	return fmt.Sprintf("want %d lines, got %d", len(w), len(g))
}

// storyteller applies entries and writes down what happens.
type storyteller struct {
	s           *State
	index, term uint64
	out         strings.Builder
}

func runStory(t *testing.T, source string) string {
	st := &storyteller{s: New(), term: 1}
	st.apply([]Command{&Announce{Term: 1, Server: Server{ID: "s1"}}, &Bootstrap{ClusterID: "test", FirstToken: 1}}, nil)
	var out []string
	for _, block := range strings.Split(strings.TrimSpace(source), "\n\n") {
		head, _, isCase := strings.Cut(block, "\n----")
		if !isCase && strings.HasPrefix(block, "#") {
			out = append(out, block)
			continue
		}
		st.out.Reset()
		if err := st.run(head); err != nil {
			t.Fatalf("%v in case:\n%s", err, head)
		}
		if err := st.s.Check(); err != nil {
			t.Fatalf("%v after case:\n%s", err, head)
		}
		if st.out.Len() == 0 {
			st.out.WriteString("nothing happens\n")
		}
		out = append(out, head+"\n----\n"+strings.TrimSuffix(st.out.String(), "\n"))
	}
	return strings.Join(out, "\n\n") + "\n"
}

func (st *storyteller) run(head string) error {
	var commands []Command
	var requests []uint64
	for _, line := range strings.Split(head, "\n") {
		words := strings.Fields(line)
		if len(words) == 0 || strings.HasPrefix(line, "#") {
			continue
		}
		switch words[0] {
		case "term":
			n, err := strconv.ParseUint(words[1], 10, 64)
			if err != nil {
				return err
			}
			st.term = n
		case "show":
			st.show()
		case "restart":
			if err := st.restart(); err != nil {
				return err
			}
		case "rebase":
			if err := st.rebase(args(words[1:])); err != nil {
				return err
			}
		case "wait":
			d, err := time.ParseDuration(words[1])
			if err != nil {
				return err
			}
			st.wait(d)
		default:
			a := args(words[1:])
			c, err := st.parseCommand(words[0], a)
			if err != nil {
				return err
			}
			commands = append(commands, c)
			requests = append(requests, a.uint("request"))
		}
	}
	if !slices.ContainsFunc(requests, func(id uint64) bool { return id != 0 }) {
		requests = nil
	}
	if len(commands) > 0 {
		st.apply(commands, requests)
	}
	return nil
}

func (st *storyteller) apply(commands []Command, requests []uint64) {
	st.index++
	before, keys := st.s.Revision(), st.s.Keys().Revision()
	results := st.s.Apply(st.index, st.term, &Batch{Commands: commands, Requests: requests})
	for i := range results {
		st.result(i, len(results), &results[i])
	}
	events, err := st.s.Events(before, LedgerSize, nil)
	if err != nil {
		fmt.Fprintln(&st.out, err)
	}
	for _, e := range events {
		st.event(e)
	}
	st.keyEvents(keys)
}

// wait lets the clock go on, an entry at a time, and tells only the events.
func (st *storyteller) wait(d time.Duration) {
	before := st.s.Revision()
	for ; d > 0; d -= MaxElapsed {
		st.index++
		st.s.Apply(st.index, st.term, &Batch{Commands: []Command{&Tick{Term: st.term, Elapsed: min(d, MaxElapsed)}}})
	}
	events, err := st.s.Events(before, LedgerSize, nil)
	if err != nil {
		fmt.Fprintln(&st.out, err)
	}
	for _, e := range events {
		st.event(e)
	}
}

func (st *storyteller) result(i, n int, r *Result) {
	prefix := ""
	if n > 1 {
		prefix = fmt.Sprintf("%d: ", i+1)
	}
	if r.Err != nil {
		fmt.Fprintf(&st.out, "%srefused: %v\n", prefix, r.Err)
		return
	}
	said := st.keyResult(prefix, r) || st.accessResult(prefix, r)
	for j, err := range r.Items {
		if err != nil {
			fmt.Fprintf(&st.out, "%sitem %d refused: %v\n", prefix, j+1, err)
			said = true
		}
	}
	for _, x := range r.Sessions {
		if x.Err != nil {
			fmt.Fprintf(&st.out, "%srefused: %v\n", prefix, x.Err)
		} else {
			fmt.Fprintf(&st.out, "%sok ttl=%dms\n", prefix, x.TTLMillis)
		}
		said = true
	}
	if x := r.Session; x != nil {
		fmt.Fprintf(&st.out, "%ssession %d incarnation=%d ttl=%s deadline=%s\n", prefix, x.ID, x.Incarnation, x.TTL, x.Deadline)
		said = true
	}
	if !said {
		fmt.Fprintf(&st.out, "%sok\n", prefix)
	}
}

func (st *storyteller) event(e Event) {
	fmt.Fprintf(&st.out, "  %d %s", e.Revision, e.Kind)
	if e.Keyspace != 0 {
		fmt.Fprintf(&st.out, " %d", e.Keyspace)
		switch e.Kind {
		case KindGrant, KindRelease, KindRevoke, KindExpire, KindDrain, KindQuarantine, KindRetry:
			fmt.Fprintf(&st.out, "/%d", e.Partition)
		}
	}
	if e.Worker != "" {
		fmt.Fprintf(&st.out, " %s", e.Worker)
	}
	for _, f := range []struct {
		name  string
		value uint64
	}{{"session", uint64(e.Session)}, {"token", uint64(e.Token)}, {"target", uint64(e.Target)}} {
		if f.value != 0 {
			fmt.Fprintf(&st.out, " %s=%d", f.name, f.value)
		}
	}
	if e.From != "" {
		fmt.Fprintf(&st.out, " from=%s", e.From)
	}
	if e.Cause != CauseNone {
		fmt.Fprintf(&st.out, " cause=%s", e.Cause)
	}
	fmt.Fprintln(&st.out)
}

func (st *storyteller) show() {
	s := st.s
	fmt.Fprintf(&st.out, "clock=%s token=%d\n", s.Now(), s.LastToken())
	for x := range s.Sessions() {
		if x.isLease() {
			continue
		}
		fmt.Fprintf(&st.out, "session %d %s %s ttl=%s renewal=%d deadline=%s held=%d keyspaces=%v%s\n",
			x.ID, x.Worker, x.State, x.TTL, x.Renewal, x.Deadline, x.Held, x.Keyspaces, ownerText(x))
	}
	for w := range s.Workers() {
		fmt.Fprintf(&st.out, "worker %s incarnation=%d session=%d drained=%t opens=%v\n", w.ID, w.Incarnation, w.Session, w.Drained, w.Opens)
	}
	for k := range s.Keyspaces() {
		fmt.Fprintf(&st.out, "keyspace %d %s %s owned=%d draining=%d quarantined=%d deleting=%t\n",
			k.ID, k.Name, k.Settings.Takeover, k.Owned, k.Draining, k.Quarantined, k.Deleting)
		for p := range k.Partitions {
			if l := k.Lease(p); l != (Lease{}) {
				fmt.Fprintf(&st.out, "  %d token=%d session=%d draining=%t since=%s previous=%s\n", p, l.Token, l.Session, l.Draining, l.Since, k.Previous(p))
			}
		}
		for m := range k.Moves() {
			fmt.Fprintf(&st.out, "  move %d token=%d target=%d reserve=%t started=%s deadline=%s cause=%s\n",
				m.Partition, m.Token, m.Target, m.Reserve, m.Started, m.Deadline, m.Cause)
		}
		for v := range k.Slots() {
			fmt.Fprintf(&st.out, "  slot %s zone=%s %v reserved=%t until=%s\n", v.Worker, v.Zone, v.Partitions, v.Reserved, v.Until)
		}
		for v := range k.Suspects() {
			fmt.Fprintf(&st.out, "  suspect %d failures=%d workers=%v retry=%s quarantined=%t error=%q\n",
				v.Partition, v.Failures, v.Workers, v.RetryAt, v.Quarantined, v.LastError)
		}
	}
	st.showKeys()
	st.showAccess()
}

// args are the words of a line: key=value, and items without a key.
type args []string

func (a args) str(key string) string {
	for _, w := range a {
		if k, v, ok := strings.Cut(w, "="); ok && k == key {
			return v
		}
	}
	return ""
}

func (a args) uint(key string) uint64 {
	n, _ := strconv.ParseUint(a.str(key), 10, 64)
	return n
}

func (a args) dur(key string, otherwise time.Duration) time.Duration {
	if a.str(key) == "" {
		return otherwise
	}
	d, err := time.ParseDuration(a.str(key))
	if err != nil {
		panic(err)
	}
	return d
}

func (a args) items() []string {
	return slices.DeleteFunc(slices.Clone(a), func(w string) bool { return strings.Contains(w, "=") })
}

func (a args) cause() Cause {
	for c := CauseNone; c <= CauseCredentialRevoked; c++ {
		if c.String() == a.str("cause") {
			return c
		}
	}
	return CauseNone
}
