package console

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/leasehold-dev/leasehold/ownership/api"
	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// stateWords are those of ListPartitions, by code.
var stateWords = []string{"UNOWNED", "OWNED", "DRAINING", "QUARANTINED", "BLOCKED"}

// agrees compares what a page has put together with what the calls answer.
func (w *world) agrees(t tester, p *page, asked string) {
	var ks struct {
		Items []struct {
			Name   string
			Status struct{ Owned, Unowned, Quarantined string }
		}
	}
	w.call(t, "KeyspaceService/ListKeyspaces", map[string]any{"stale": true}, &ks)
	name := asked
	if name == "" && len(ks.Items) > 0 {
		name = ks.Items[0].Name
	}
	if p.keyspace != name {
		t.Fatalf("keyspace %q, not %q", p.keyspace, name)
	}
	var rows []keyspaceRow
	if err := json.Unmarshal(p.sections["keyspaces"], &rows); err != nil || len(rows) != len(ks.Items) {
		t.Fatalf("keyspaces %s, not %+v", p.sections["keyspaces"], ks.Items)
	}
	for i, k := range ks.Items {
		want := func(s string) int64 { n, _ := strconv.ParseInt("0"+s, 10, 64); return n }
		if r := rows[i]; r.Name != k.Name || r.Owned != want(k.Status.Owned) || r.Unowned != want(k.Status.Unowned) || r.Quarantined != want(k.Status.Quarantined) {
			t.Fatalf("keyspace %+v, not %+v", r, k)
		}
	}
	w.sameWorkers(t, p)
	if !slices.ContainsFunc(rows, func(r keyspaceRow) bool { return r.Name == name }) {
		if len(p.owner) != 0 {
			t.Fatalf("%d partitions of keyspace %q, which does not exist", len(p.owner), name)
		}
		return
	}
	w.samePartitions(t, p, name)
	var last uint64
	w.View(func(s *state.State) { last = s.Revision() })
	if p.events[len(p.events)-1] != last {
		t.Fatalf("the last event is %d, not %d", p.events[len(p.events)-1], last)
	}
}

func (w *world) samePartitions(t tester, p *page, name string) {
	var list struct {
		Items []struct {
			Partition    int
			Owner, State string
		}
	}
	w.call(t, "PartitionService/ListPartitions", map[string]any{"keyspace": name, "stale": true}, &list)
	if len(list.Items) != len(p.owner) {
		t.Fatalf("%d partitions, not %d", len(p.owner), len(list.Items))
	}
	since, churn := w.reference(name)
	blocked := 0
	for i, item := range list.Items {
		owner := ""
		if p.owner[i] >= 0 {
			owner = p.owners[p.owner[i]]
		}
		if got := "PARTITION_STATE_" + stateWords[p.state[i]]; owner != item.Owner || got != item.State {
			t.Fatalf("partition %d: %q %s, not %q %s", i, owner, got, item.Owner, item.State)
		}
		if p.since[i] != since[i] || p.churn[i] != churn[i] {
			t.Fatalf("partition %d: since %d churn %d, not since %d churn %d", i, p.since[i], p.churn[i], since[i], churn[i])
		}
		if p.state[i] == 4 {
			blocked++
		}
	}
	var rows []keyspaceRow
	_ = json.Unmarshal(p.sections["keyspaces"], &rows)
	for _, r := range rows {
		if r.Name == name && r.Blocked != blocked {
			t.Fatalf("blocked %d, not %d", r.Blocked, blocked)
		}
	}
}

// reference works since and churn out from the state and the whole ledger.
func (w *world) reference(name string) (since []int64, churn []int) {
	now := w.wall()
	w.View(func(s *state.State) {
		ks, _ := s.KeyspaceByName(name)
		since, churn = make([]int64, ks.Partitions), make([]int, ks.Partitions)
		for p := range ks.Partitions {
			since[p] = w.begin.Add(max(ks.Lease(p).Since, ks.CreatedAt.Truncate(time.Second))).UnixMilli()
		}
		evs, err := s.Events(s.Revision()-min(s.Revision(), state.LedgerSize), state.LedgerSize, nil)
		if err != nil {
			panic(err)
		}
		for _, ev := range evs {
			if ev.Kind == state.KindGrant && ev.Keyspace == ks.ID && ev.From != "" && ev.From != ev.Worker && ev.Wall >= now.Add(-api.ChurnWindow).UnixMilli() {
				churn[ev.Partition]++
			}
		}
	})
	return since, churn
}

func (w *world) sameWorkers(t tester, p *page) {
	var list struct {
		Items []struct {
			ID, State string
			Held      string
			Draining  bool
		}
	}
	w.call(t, "WorkerService/ListWorkers", map[string]any{"stale": true}, &list)
	var rows []workerRow
	if err := json.Unmarshal(p.sections["workers"], &rows); err != nil || len(rows) != len(list.Items) {
		t.Fatalf("workers %s, not %+v", p.sections["workers"], list.Items)
	}
	for i, m := range list.Items {
		if r := rows[i]; r.ID != m.ID || r.State != m.State || fmt.Sprint(r.Held) != "0"+m.Held && fmt.Sprint(r.Held) != m.Held || r.Draining != m.Draining || r.Margin < 0 || r.Margin > 1 {
			t.Fatalf("worker %+v, not %+v", r, m)
		}
	}
}

// step changes the world at random.
func (w *world) step(t *rapid.T) {
	name := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "name")
	worker := rapid.SampledFrom([]string{"w1", "w2", "w3"}).Draw(t, "worker")
	session := state.SessionID(rapid.IntRange(1, 8).Draw(t, "session"))
	p := rapid.Uint32Range(0, 4).Draw(t, "partition")
	var ks state.KeyspaceID
	var l state.Lease
	var inc uint64
	var renewal uint64
	w.View(func(s *state.State) {
		if k, ok := s.KeyspaceByName(name); ok {
			ks, l = k.ID, k.Lease(min(p, k.Partitions-1))
			p = min(p, k.Partitions-1)
		}
		if x, ok := s.Worker(worker); ok {
			inc = x.Incarnation
		}
		if x, ok := s.Session(session); ok {
			renewal = x.Renewal
		}
	})
	switch rapid.IntRange(0, 17).Draw(t, "what") {
	case 0:
		set := state.DefaultSettings()
		set.Takeover = rapid.SampledFrom([]state.Takeover{state.Strict, state.Fenced}).Draw(t, "takeover")
		w.apply(&state.CreateKeyspace{Name: name, Partitions: rapid.Uint32Range(1, 6).Draw(t, "n"), Settings: set})
	case 1:
		w.apply(&state.DeleteKeyspace{Name: name})
	case 2, 3:
		w.apply(&state.OpenSession{Session: session, Worker: worker, Incarnation: inc, Keyspaces: []string{name}})
	case 4:
		w.apply(&state.CloseSession{Session: session})
	case 5, 6, 7, 8:
		w.apply(&state.Grant{Term: term, Keyspace: ks, Items: []state.GrantItem{{Partition: p, LastToken: l.Token, Session: session}}, Cause: state.CauseBalance})
	case 9:
		w.apply(&state.Drain{Term: term, Keyspace: ks, Items: []state.DrainItem{{Partition: p, Token: l.Token}}, Timeout: time.Second, Cause: state.CauseBalance})
	case 10:
		cause := rapid.SampledFrom([]state.Cause{state.CauseFailed, state.CauseDrained, state.CauseYield}).Draw(t, "cause")
		w.apply(&state.Release{Session: l.Session, Items: []state.LeaseRef{{Keyspace: ks, Partition: p, Token: l.Token}}, Cause: cause})
	case 11:
		w.apply(&state.Evict{Worker: worker})
	case 12:
		w.apply(&state.BarWorker{Worker: worker, Drained: rapid.Bool().Draw(t, "drained")})
	case 13:
		w.apply(&state.Expire{Term: term, Elapsed: 20 * time.Second, Sessions: []state.Expiry{{Session: session, Renewal: renewal}}})
	case 14:
		for range rapid.SampledFrom([]int{1, 1, 100, 400}).Draw(t, "ticks") {
			w.apply(&state.Tick{Term: term, Elapsed: time.Duration(rapid.IntRange(1, 2000).Draw(t, "ms")) * time.Millisecond})
		}
	case 15, 16, 17:
		if l.Session != 0 && rapid.Bool().Draw(t, "blocked") {
			w.blocked[l.Session] = true
		} else {
			clear(w.blocked)
		}
	}
}

// Whatever happens, and however slowly somebody reads: a full picture and the
// deltas after it make what the calls answer.
func TestFeedIsWhatTheCallsAnswer(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		h := w.console(t).hub
		asked := []string{"", "a", "b"}
		var viewers []*viewer
		pages := map[*viewer]*page{}
		for range rapid.IntRange(5, 60).Draw(t, "rounds") {
			for range rapid.IntRange(0, 5).Draw(t, "steps") {
				w.step(t)
			}
			if len(viewers) < 4 && rapid.IntRange(0, 3).Draw(t, "join") == 0 || len(viewers) == 0 {
				v, _, _ := h.join(rapid.SampledFrom(asked).Draw(t, "asked"))
				v.take()
				viewers, pages[v] = append(viewers, v), &page{}
				if rapid.Bool().Draw(t, "between ticks") && len(h.feeds) > 0 {
					h.serve(h.present())
				}
			}
			if rapid.IntRange(0, 9).Draw(t, "leave") == 0 {
				h.leave(viewers[0])
				viewers = viewers[1:]
			}
			h.tick()
			for _, v := range viewers {
				if rapid.IntRange(0, 3).Draw(t, "slow") == 0 {
					continue
				}
				p := pages[v]
				msgs, _ := v.take()
				for _, m := range msgs {
					if err := p.take(m); err != nil {
						t.Fatal(err)
					}
				}
				v.take() // has sent all
				if v.behind {
					h.serve(h.present())
					continue
				}
				if len(msgs) > 0 || p.fulls > 0 {
					w.agrees(t, p, v.keyspace)
				}
			}
		}
	})
}

// Two things that hardly ever happen, and start the table over: names of workers
// pile up, and more has happened between two looks than the ledger keeps.
func TestTableStartsOver(t *testing.T) {
	w := newWorld(t)
	w.keyspace("a", 16)
	h := w.console(t).hub
	v, _, _ := h.join("a")
	v.take()
	p := &page{}
	look := func() {
		t.Helper()
		for range 2 { // one that starts over is read after the look
			h.tick()
			msgs, _ := v.take()
			for _, m := range msgs {
				if err := p.take(m); err != nil {
					t.Fatal(err)
				}
			}
			v.take()
		}
	}
	most := 0
	for i := range state.SessionID(1200) {
		w.session(i+1, fmt.Sprintf("pod-%d", i), "a")
		w.move("a", uint32(i)%16, i+1)
		if i > 20 {
			w.apply(&state.CloseSession{Session: i - 20})
		}
		if i%10 == 0 {
			look()
		}
		most = max(most, len(p.owners))
	}
	if most > 1100 || len(p.owners) > 300 || p.fulls < 2 {
		t.Errorf("up to %d names, in the end %d, %d whole pictures", most, len(p.owners), p.fulls)
	}
	look()
	w.agrees(t, p, "a")
	if slices.Max(p.churn) == 0 {
		t.Error("nothing has changed owner")
	}
	var noise []state.Command
	for i := range state.LedgerSize + 100 {
		noise = append(noise, &state.BarWorker{Worker: "pod-1199", Drained: i%2 == 0})
	}
	w.apply(noise...)
	look()
	w.agrees(t, p, "a")
	if slices.Max(p.churn) != 0 {
		t.Errorf("churn %v, of which the ledger knows nothing", p.churn)
	}
}

// The plan counts from the first look on.
func TestFirstLookHasThePlan(t *testing.T) {
	w := newWorld(t)
	w.keyspace("a", 1)
	w.session(1, "w1", "a")
	w.move("a", 0, 1)
	w.blocked[1] = true
	h := w.console(t).hub
	v, _, _ := h.join("a")
	v.take()
	h.tick()
	msgs, _ := v.take()
	p := &page{}
	if err := p.take(msgs[0]); err != nil {
		t.Fatal(err)
	}
	w.agrees(t, p, "a")
}
