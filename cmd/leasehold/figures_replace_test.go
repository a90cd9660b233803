package main

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/leasehold-dev/leasehold/cmd/leasehold/internal/cluster"
)

// Each server loses its data directory in turn and comes back under its id.
func TestReplaceAllServersUnderTheirIDs(t *testing.T) {
	t.Parallel() // it mostly waits
	s := stage(t, 20*time.Second)
	for _, srv := range s.Cluster.Servers() {
		began := time.Now()
		s.must(s.Cluster.Terminate(s.ctx, srv))
		s.must(s.Cluster.Wipe(srv))
		s.must(s.Cluster.Restart(s.ctx, srv))
		s.must(s.Cluster.AwaitVoters(s.ctx))
		t.Logf("%s votes again %v after it was stopped", srv.ID, time.Since(began).Round(10*time.Millisecond))
	}
	s.undisturbed(s.end())
}

// Each server is replaced by a new one with another id and other addresses.
func TestReplaceAllServersByNewOnes(t *testing.T) {
	t.Parallel()
	s := stage(t, 20*time.Second)
	for i, srv := range slices.Clone(s.Cluster.Servers()) {
		began := time.Now()
		s.must(s.Cluster.Swap(s.ctx, s.Client, srv, cluster.ServerSpec{ID: fmt.Sprintf("s%d", i+4), Env: asProgram}))
		s.must(s.Cluster.AwaitVoters(s.ctx))
		s.must(s.Redial(s.ctx)) // unlike workers, the driver does not look for servers
		t.Logf("s%d votes in place of %s after %v", i+4, srv.ID, time.Since(began).Round(10*time.Millisecond))
	}
	s.undisturbed(s.end())
}
