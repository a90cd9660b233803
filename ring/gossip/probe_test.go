package gossip

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"
)

// probing starts three servers and a worker that the first one asks about.
func probing(h *harness) (servers []*testMember, w *testMember) {
	servers = h.startServers(3)
	w = h.start(RoleWorker, "w1")
	h.waitAllAlive(20*time.Second, append(slices.Clone(servers), w)...)
	return servers, w
}

func TestProbeOfALivingMember(t *testing.T) {
	inBubble(t, func(h *harness) {
		servers, _ := probing(h)
		start := time.Now()
		if !servers[0].Probe(context.Background(), "w/w1") {
			t.Fatal("no answer")
		}
		if took := time.Since(start); took > 10*time.Millisecond {
			t.Fatalf("took %v", took)
		}
	})
}

// The member that answers does so only to others: the helpers must save it.
func TestProbeGoesThroughOthersWhenTheDirectWayIsCut(t *testing.T) {
	inBubble(t, func(h *harness) {
		servers, w := probing(h)
		a, b := servers[0].LocalAddr(), w.LocalAddr()
		h.net.cutLinks(func(from, to string) bool { return from == a && to == b || from == b && to == a })
		start := time.Now()
		if !servers[0].Probe(context.Background(), "w/w1") {
			t.Fatal("no answer through others")
		}
		if took := time.Since(start); took > 20*time.Millisecond {
			t.Fatalf("took %v", took)
		}
	})
}

func TestProbeOfADeadMemberIsSilentInTime(t *testing.T) {
	for name, stop := range map[string]func(*testMember){
		"killed":  func(m *testMember) { m.crash() },
		"stopped": func(m *testMember) { m.port.freeze(true) },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(h *harness) {
				servers, w := probing(h)
				stop(w)
				start := time.Now()
				if servers[0].Probe(context.Background(), "w/w1") {
					t.Fatal("the dead answered")
				}
				if took := time.Since(start); took < probePatience || took > probePatience+10*time.Millisecond {
					t.Fatalf("took %v, want %v", took, probePatience)
				}
			})
		})
	}
}

// Where UDP is blocked, only the stream can tell that the member lives.
func TestProbeFallsBackToAStream(t *testing.T) {
	inBubble(t, func(h *harness) {
		servers, w := probing(h)
		h.net.blockPackets(func(string, string) bool { return true })
		start := time.Now()
		if !servers[0].Probe(context.Background(), "w/w1") {
			t.Fatal("no answer by stream")
		}
		if took := time.Since(start); took < probeStreamAfter || took > probePatience {
			t.Fatalf("took %v", took)
		}
		w.crash()
		if servers[0].Probe(context.Background(), "w/w1") {
			t.Fatal("the dead answered by stream")
		}
	})
}

// An address that has been given to another process does not speak for the old.
func TestProbeIsNotAnsweredByAnother(t *testing.T) {
	inBubble(t, func(h *harness) {
		servers, w := probing(h)
		w.crash()
		h.next-- // the next member gets the same address
		h.start(RoleWorker, "newcomer", func(c *Config) { c.Seeds = nil })
		if servers[0].Probe(context.Background(), "w/w1") {
			t.Fatal("another process answered for the dead one")
		}
	})
}

func TestProbeWithoutEvidenceIsNotADeath(t *testing.T) {
	inBubble(t, func(h *harness) {
		servers, w := probing(h)
		if !servers[0].Probe(context.Background(), "w/nobody") {
			t.Fatal("silence of an unknown member was taken for a death")
		}
		w.crash()
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if !servers[0].Probe(ctx, "w/w1") {
			t.Fatal("an ended context was taken for a death")
		}
	})
}

// A leader may ask about a hundred workers at once when a machine dies.
func TestManyProbesAtOnce(t *testing.T) {
	inBubble(t, func(h *harness) {
		servers := h.startServers(3)
		var workers []*testMember
		for i := range 20 {
			workers = append(workers, h.start(RoleWorker, fmt.Sprintf("w%d", i)))
		}
		h.waitAllAlive(20*time.Second, append(slices.Clone(servers), workers...)...)
		for _, w := range workers[:10] {
			w.crash()
		}
		type result struct {
			i        int
			answered bool
		}
		results := make(chan result, 20)
		for i := range 20 {
			go func() { results <- result{i, servers[0].Probe(context.Background(), fmt.Sprintf("w/w%d", i))} }()
		}
		for range 20 {
			if r := <-results; r.answered != (r.i >= 10) {
				t.Errorf("w%d: answered=%t", r.i, r.answered)
			}
		}
	})
}

func FuzzDecodeMessage(f *testing.F) {
	f.Add(message{kind: kindAsk, id: 7, from: "s/a", target: "w/b"}.encode())
	f.Add([]byte{})
	f.Add([]byte{1, 3, 0, 0, 0, 0, 0, 0, 0, 7, 255})
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := decodeMessage(b)
		if err != nil {
			return
		}
		again, err := decodeMessage(m.encode())
		if err != nil || again != m {
			t.Fatalf("%+v became %+v, %v", m, again, err)
		}
	})
}
