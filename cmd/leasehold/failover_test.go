package main

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/leasehold-dev/leasehold/cmd/leasehold/internal/cluster"
)

// kill -9 of the leader's process: the others see its connections end and elect
// one of themselves at once, without waiting for an election timeout, so that a
// write is taken well within a second. Every write that was acknowledged is there, and
// no number comes twice although its key is deleted (O-66).
func TestWriteSoonAfterTheLeaderWasKilled(t *testing.T) {
	s := newSite(t, 3)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	if err := s.AwaitVoters(ctx); err != nil {
		t.Fatal(err)
	}
	// Who waits until heartbeats are missed needs half a second at least, each time.
	// On a busy machine a round may take that long for other reasons.
	const soon = 400 * time.Millisecond
	var took []time.Duration
	quick := 0
	for i := 0; i < 4 || 2*quick <= i && i < 12; i++ {
		leader, err := s.Leader(ctx)
		if err != nil {
			t.Fatal(err)
		}
		other := s.Servers()[slices.IndexFunc(s.Servers(), func(x *cluster.Server) bool { return x != leader })]
		drawn, _ := s.want(exitOK, "seq", "n")
		if drawn != fmt.Sprintln(i+1) {
			t.Errorf("number %q under leader %d, want %d", drawn, i+1, i+1)
		}
		s.want(exitOK, "kv", "del", fmt.Sprintf("n/%019d", i+1))
		took = append(took, s.writeAfterKill(ctx, leader, other, name(i)))
		if took[i] <= soon {
			quick++
		}
		if err := s.Start(leader); err != nil {
			t.Fatal(err)
		}
		s.ready(leader)
	}
	t.Logf("the next write came after %v", took)
	if 2*quick <= len(took) {
		t.Errorf("the next write came after %v, want most within %v", took, soon)
	}
	got, err := s.etcd().Get(ctx, "load-", clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil || got.Count != int64(2*len(took)) {
		t.Errorf("%v, %v; %d writes were acknowledged", got, err, 2*len(took))
	}
}

// writeAfterKill kills the leader and tells how long a write then took at another
// server, whose client asks again without a pause.
func (s *site) writeAfterKill(ctx context.Context, leader, other *cluster.Server, key string) time.Duration {
	s.t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{other.GRPCAddr}, Logger: zap.NewNop()})
	if err != nil {
		s.t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Put(ctx, key+"/before", ""); err != nil {
		s.t.Fatal(err)
	}
	began := time.Now()
	s.kill(leader)
	for {
		_, err := c.Put(ctx, key+"/after", "")
		if err == nil {
			return time.Since(began)
		}
		if ctx.Err() != nil {
			s.t.Fatalf("no write was taken: %v", err)
		}
	}
}
