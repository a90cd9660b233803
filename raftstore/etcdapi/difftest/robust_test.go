package difftest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	robustFor  = 22 * time.Second
	robustMost = 6 * robustFor // where leastOps take longer than that
	leastOps   = 5000
)

// TestLinearizableUnderFaults lets eight clients read, put, compare and delete
// at three servers, one of which is killed, stopped or quickly restarted all
// the time, and watches beside them. The whole history is linearizable, every
// watch is whole, and the servers' stores are the same in the end.
func TestLinearizableUnderFaults(t *testing.T) {
	l := leasehold(t, 3)
	waitServing(t, l.Addrs)
	h, seed := newHistory(), *seedFlag
	first, err := client(t, l.Addrs...).Put(t.Context(), testPrefix+"start", "")
	must(t, err)

	watches := startWatches(t, l, h, first.Header.Revision)
	ctx, cancel := context.WithTimeout(t.Context(), robustMost)
	defer cancel()
	go func() {
		_ = poll(ctx, 100*time.Millisecond, func() bool { return h.now() > int64(robustFor) && h.count() >= leastOps })
		cancel()
	}()
	var wg sync.WaitGroup
	for i := range 8 {
		u := &tester{id: i, c: client(t, l.Addrs...), h: h, rng: rand.New(rand.NewPCG(seed, uint64(i))), seen: map[string]int64{}}
		wg.Go(func() { u.run(ctx) })
	}
	compactor := client(t, l.Addrs...)
	wg.Go(func() { compactAway(ctx, compactor) })
	faults, err := trouble(ctx, l, rand.New(rand.NewPCG(seed, 99)))
	must(t, err)
	wg.Wait()

	events := endWatches(t, l, watches)
	h.resolve(events)
	unknown := 0
	for _, r := range h.records {
		if r.neverApplied {
			unknown++
		}
	}
	t.Logf("%d operations (%d writes without an answer never happened), %d events, faults: %v", len(h.records), unknown, len(events), faults)
	if len(h.records) < leastOps {
		t.Errorf("%d operations are too few to show anything: want %d", len(h.records), leastOps)
	}
	if err := linearizable(h.operations()); err != nil {
		t.Error(err)
	}
	if err := h.checkOrder(); err != nil {
		t.Error(err)
	}
	if err := checkComplete(events, h.records); err != nil {
		t.Error(err)
	}
	sameHash(t, l)
	doctoredHistories(t, h, events)
}

// watch is a follower and what became of it.
type watch struct {
	seen *observed
	err  error
	done chan struct{}
}

// startWatches follows from each server, and from all in turn.
func startWatches(t *testing.T, l *Leasehold, h *history, from int64) []*watch {
	t.Helper()
	var each []*clientv3.Client
	for _, addr := range l.Addrs {
		each = append(each, client(t, addr))
	}
	ctx := within(t, robustMost+time.Minute)
	var watches []*watch
	add := func(name string, hop time.Duration, clients ...*clientv3.Client) {
		w := &watch{done: make(chan struct{})}
		watches = append(watches, w)
		rng := rand.New(rand.NewPCG(*seedFlag, uint64(len(watches))))
		go func() {
			defer close(w.done)
			w.seen, w.err = follow(ctx, name, clients, from, hop, h, rng)
		}()
	}
	for i, s := range l.Servers {
		add("at "+s.ID, 0, each[i])
	}
	add("hopping", 700*time.Millisecond, each...)
	add("hopping fast", 100*time.Millisecond, each...)
	return watches
}

// endWatches tells the watches of the end, waits for them and checks them. It
// returns the complete list of events.
func endWatches(t *testing.T, l *Leasehold, watches []*watch) []change {
	t.Helper()
	waitServing(t, l.Addrs)
	_, err := client(t, l.Addrs...).Put(t.Context(), endKey, "")
	must(t, err)
	for _, w := range watches {
		<-w.done
		must(t, w.err)
		if err := w.seen.check(); err != nil {
			t.Error(err)
		}
		if err := checkSame(watches[0].seen, w.seen); err != nil {
			t.Error(err)
		}
	}
	return watches[0].seen.all()
}

// compactAway compacts once a second, well behind.
func compactAway(ctx context.Context, c *clientv3.Client) {
	for tick := time.NewTicker(time.Second); ; {
		select {
		case <-ctx.Done():
			tick.Stop()
			return
		case <-tick.C:
			if r, err := c.Get(ctx, "x"); err == nil && r.Header.Revision > 2000 {
				_, _ = c.Compact(ctx, r.Header.Revision-2000)
			}
		}
	}
}

// trouble makes one fault after the other until ctx ends: never two servers
// are away at once. It counts them.
func trouble(ctx context.Context, l *Leasehold, rng *rand.Rand) (map[string]int, error) {
	faults := map[string]int{}
	pause := func(d time.Duration) {
		select {
		case <-ctx.Done():
		case <-time.After(d):
		}
	}
	for ctx.Err() == nil {
		pause(400*time.Millisecond + time.Duration(rng.IntN(600))*time.Millisecond)
		s := l.Servers[rng.IntN(len(l.Servers))]
		switch rng.IntN(3) {
		case 0:
			faults["killed"]++
			if err := restart(s, func() { pause(time.Duration(500+rng.IntN(1000)) * time.Millisecond) }); err != nil {
				return nil, err
			}
		case 1:
			faults["restarted in 100 ms"]++
			if err := restart(s, func() { pause(100 * time.Millisecond) }); err != nil {
				return nil, err
			}
		case 2:
			faults["stopped"]++
			if err := s.Signal(syscall.SIGSTOP); err != nil {
				return nil, err
			}
			pause(time.Duration(300+rng.IntN(1500)) * time.Millisecond)
			if err := s.Signal(syscall.SIGCONT); err != nil {
				return nil, err
			}
		}
	}
	return faults, nil
}

func restart(s *Server, pause func()) error {
	if !s.Up() {
		return fmt.Errorf("%s ended by itself: %s", s.ID, s.Log())
	}
	if err := s.Kill(); err != nil {
		return err
	}
	pause()
	return s.Start()
}

// sameHash asks every server for the sum of its store at one revision.
func sameHash(t *testing.T, l *Leasehold) {
	t.Helper()
	c := client(t, l.Addrs...)
	now, err := c.Get(t.Context(), endKey)
	must(t, err)
	hashes := map[uint32]bool{}
	for _, addr := range l.Addrs {
		_, err := client(t, addr).Get(t.Context(), endKey) // until it is there
		must(t, err)
		r, err := c.HashKV(t.Context(), addr, now.Header.Revision)
		must(t, err)
		hashes[r.Hash] = true
		t.Logf("%s: hash %08x at revision %d, compacted %d", addr, r.Hash, now.Header.Revision, r.CompactRevision)
	}
	if len(hashes) != 1 {
		t.Errorf("the servers' stores differ: %d hashes", len(hashes))
	}
}
