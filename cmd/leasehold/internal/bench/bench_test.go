package bench

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/leasehold-dev/leasehold/cmd/leasehold/internal/cluster"
	"github.com/leasehold-dev/leasehold/ownership/bootclock"
	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"github.com/leasehold-dev/leasehold/ownership/router"
)

func line(notes ...note) string {
	var raw []byte
	for _, n := range notes {
		raw = appendNote(raw, n)
	}
	return tellNotes + " " + base64.StdEncoding.EncodeToString(raw)
}

func TestNotesAreReadAsTheyWereWritten(t *testing.T) {
	want := []note{{noteRunning, 0, 1<<53 - 1, time.Hour}, {noteDraining, 1<<20 - 1, 1, 0}}
	var raw []byte
	for _, n := range want {
		raw = appendNote(raw, n)
	}
	got, err := readNotes(raw)
	if err != nil || !slices.Equal(got, want) {
		t.Fatalf("read %v, %v; want %v", got, err, want)
	}
	if _, err := readNotes(raw[:len(raw)-1]); err == nil {
		t.Fatal("half a note was read")
	}
}

func TestTheNewestTokenOwns(t *testing.T) {
	f := newFleet(&bed{}, 2)
	p1, p2 := &cluster.Process{Name: "p1"}, &cluster.Process{Name: "p2"}
	f.hear(p1, line(note{noteRunning, 0, 33, 1}, note{noteRunning, 1, 34, 2}))
	f.hear(p2, line(note{noteRunning, 0, 40, 5}))
	f.hear(p1, line(note{noteRunning, 0, 35, 9}, note{noteRunning, 7, 50, 9})) // late, and unknown
	o := f.owners()
	if o[0] != (owner{p2, 40, 5}) || o[1] != (owner{p1, 34, 2}) {
		t.Fatalf("owners %v", o)
	}
	if err := f.waitOwned(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestAFailedWorkerEndsTheWait(t *testing.T) {
	f := newFleet(&bed{}, 1)
	f.hear(&cluster.Process{Name: "p1"}, tellFailed+" w1: run: no such keyspace")
	if err := f.waitOwned(t.Context()); err == nil || !strings.Contains(err.Error(), "no such keyspace") {
		t.Fatalf("wait ended with %v", err)
	}
	f = newFleet(&bed{}, 1)
	f.hear(&cluster.Process{Name: "p1"}, tellNotes+" AAAA")
	if err := f.waitOwned(t.Context()); err == nil || !strings.Contains(err.Error(), "p1") {
		t.Fatalf("wait ended with %v after a garbled line", err)
	}
}

func TestHandoffsArePairedByToken(t *testing.T) {
	p, q := &cluster.Process{Name: "p1"}, &cluster.Process{Name: "p2"}
	// Partition 2 moves without a drain, 3 has not moved, 0 moves twice, and of
	// that the second process tells first.
	logged := map[uint64]time.Duration{1: 10, 2: 11, 4: 12, 5: 35}
	for own, want := range map[bool][]time.Duration{true: {10, 20, 29}, false: {9, 18, 27}} {
		f := newFleet(&bed{}, 4)
		f.hear(p, line(note{noteRunning, 0, 1, 1}, note{noteRunning, 1, 2, 1}, note{noteRunning, 2, 3, 1}, note{noteRunning, 3, 4, 1}))
		f.hear(q, line(note{noteRunning, 0, 8, 45}))
		f.hear(p, line(note{noteDraining, 0, 1, 12}, note{noteRunning, 0, 5, 30}, note{noteDraining, 0, 5, 36}, note{noteDraining, 1, 2, 13}, note{noteRunning, 1, 6, 40}, note{noteRunning, 2, 7, 50}))
		got := f.handoffs(logged, own)
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("own servers %v: %v, want %v", own, got, want)
		}
		if again := f.handoffs(nil, own); len(again) != 0 {
			t.Errorf("counted twice: %v", again)
		}
	}
}

func TestTheFirstDrainOfATokenCounts(t *testing.T) {
	d := &drains{}
	at := time.Now()
	for i := range 3 {
		d.hear(&leaseholdv1.Event{Kind: []string{"drain", "drain", "grant"}[i], Token: 33, Time: timestamppb.New(at.Add(time.Duration(i) * time.Hour))})
	}
	got := d.take()
	if len(got) != 1 || len(d.take()) != 0 {
		t.Fatalf("drains %v", got)
	}
	d.hear(&leaseholdv1.Event{Kind: "drain", Token: 33, Time: timestamppb.New(at.Add(time.Hour))})
	if later := d.take()[33]; later-got[33] < 59*time.Minute {
		t.Fatalf("the drain was taken at %v, the one an hour later at %v", got[33], later)
	}
}

func TestResultLines(t *testing.T) {
	for _, c := range []struct {
		result any
		want   string
	}{
		{AssignResult{"assign", 100, 100000, 0.412}, `{"bench":"assign","workers":100,"partitions":100000,"seconds":0.412}`},
		{operations("handoff", false, []time.Duration{time.Millisecond, 3 * time.Millisecond}, 100*time.Millisecond),
			`{"bench":"handoff","mode":"fenced","count":2,"ops_per_second":20,"p50_ms":1,"p99_ms":3,"max_ms":3}`},
		{operations("takeover", true, nil, 0), `{"bench":"takeover","mode":"strict","count":0,"ops_per_second":0,"p50_ms":0,"p99_ms":0,"max_ms":0}`},
		{SessionsResult{"sessions", 1000, 10000, 1.25}, `{"bench":"sessions","sessions":1000,"ttl_ms":10000,"seconds":1.25}`},
	} {
		raw, err := json.Marshal(c.result)
		if err != nil || string(raw) != c.want {
			t.Errorf("got  %s, %v\nwant %s", raw, err, c.want)
		}
	}
}

func TestSessionsOfOtherServersAreNotMeasured(t *testing.T) {
	_, err := Sessions(t.Context(), Config{Servers: "10.0.0.1:7400"}, SessionsConfig{})
	if err == nil || errors.Is(err, t.Context().Err()) || !strings.Contains(err.Error(), "--server") {
		t.Fatalf("error %v", err)
	}
}

// A router that has seen only a later grant of the partition has shown the move
// by then, and one that has seen an earlier one has not.
func TestARouterShowsAMoveByItsTokenOrALaterOne(t *testing.T) {
	w := &watcher{changed: make(chan struct{}, 1)}
	from := bootclock.Boot().Now() - time.Hour
	for _, at := range []router.Route{
		{Partition: 1, Owner: "a", Token: 33}, {Partition: 1, Token: 33}, {Partition: 1, Owner: "b", Token: 40}, {Partition: 2, Owner: "a", Token: 50},
	} {
		w.hear(at)
	}
	took, err := w.times(t.Context(), []granted{{1, 33, from}, {1, 36, from}, {2, 50, from}})
	if err != nil || len(took) != 3 || slices.Min(took) < time.Hour || took[0] > took[1] || len(w.shown[1]) != 2 {
		t.Fatalf("%v, %v, shown %v", took, err, w.shown)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if took, err := w.times(ctx, []granted{{1, 41, from}}); err == nil || !strings.Contains(err.Error(), "41") {
		t.Fatalf("a grant that was not shown took %v, %v", took, err)
	}
}

func TestRoutersOfOtherServersAreNotMeasured(t *testing.T) {
	if _, err := RouterTimes(t.Context(), Config{Servers: "10.0.0.1:7400"}, RouterConfig{}); err == nil || !strings.Contains(err.Error(), "--server") {
		t.Fatalf("error %v", err)
	}
}
