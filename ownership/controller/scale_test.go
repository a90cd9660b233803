package controller

import (
	"fmt"
	"testing"
	"time"

	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// A keyspace of 100,000 partitions with 100 waiting workers is planned and
// proposed in pieces, in real time.
func TestLargeKeyspaceIsHandedOutInPieces(t *testing.T) {
	s := newTestStore(t)
	s.keyspace("seed", 1, nil)
	var ids []state.SessionID
	for i := range 100 {
		ids = append(ids, s.open(fmt.Sprintf("w%03d", i), 0, "seed"))
	}
	m := newTally()
	_, _, stop := lead(t, s, nil, m)
	defer stop()
	cmds := []state.Command{&state.CreateKeyspace{Name: "orders", Partitions: 100_000, Settings: state.Settings{
		TTL: 10 * time.Second, Takeover: state.Strict, HandoffTimeout: 30 * time.Second}}}
	for _, id := range ids {
		cmds = append(cmds, &state.JoinKeyspace{Session: id, Keyspace: "orders"})
	}
	start := time.Now()
	ks := s.must(cmds...)[0].Keyspace.ID
	changed := make(chan struct{}, 1)
	defer s.Notify(changed)()
	for deadline := time.After(time.Minute); ; {
		if owned, _ := s.counts(ks); owned == 100_000 {
			break
		}
		select {
		case <-changed:
		case <-deadline:
			t.Fatal("not handed out in a minute")
		}
	}
	t.Logf("100,000 partitions on 100 workers: %v, %d items in the largest proposal", time.Since(start), s.largest.Load())
	if s.largest.Load() > chunkItems {
		t.Errorf("a proposal of %d items", s.largest.Load())
	}
}
