package worker

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/leasehold-dev/leasehold/ring/gossip"
)

// member starts a gossip member on loopback.
func member(t *testing.T, meta gossip.Meta, seeds ...string) *gossip.Gossip {
	t.Helper()
	g, err := gossip.New(gossip.Config{Label: "l", BindAddr: "127.0.0.1:0", Meta: meta, Seeds: seeds})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- g.Run(context.Background()) }()
	t.Cleanup(func() {
		if err := g.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
		<-done
	})
	return g
}

// A worker looks for servers where its gossip shows some: not at workers, not
// at what is no address, and not at servers of another cluster.
func TestDirectoryTakesServersFromGossip(t *testing.T) {
	w := member(t, gossip.Meta{Role: gossip.RoleWorker, ID: "w1", ClusterID: "c"})
	at := w.LocalAddr()
	for _, m := range []gossip.Meta{
		{Role: gossip.RoleServer, ID: "s1", GRPCAddr: "10.0.0.1:7400", ClusterID: "c"},
		{Role: gossip.RoleServer, ID: "s2", GRPCAddr: "10.0.0.2:7400"}, // does not know yet
		{Role: gossip.RoleServer, ID: "s3", GRPCAddr: "10.0.0.3:7400,10.0.0.4:7400", ClusterID: "c"},
		{Role: gossip.RoleServer, ID: "s4", GRPCAddr: "http://nonsense", ClusterID: "c"},
		{Role: gossip.RoleServer, ID: "s5", ClusterID: "c"},
		{Role: gossip.RoleServer, ID: "s6", GRPCAddr: "10.0.0.6:7400", ClusterID: "another"},
		{Role: gossip.RoleWorker, ID: "w2", GRPCAddr: "10.0.0.7:7400", ClusterID: "c"},
	} {
		member(t, m, at)
	}
	limit := time.After(time.Minute)
	for len(w.Members()) < 7 {
		select {
		case <-w.Changed():
		case <-limit:
			t.Fatalf("gossip shows %+v", w.Members())
		}
	}
	d := newDirectory(Config{Servers: "10.0.0.9:7400"})
	if got := d.shown(); len(got) > 0 {
		t.Fatalf("without gossip it shows %v", got)
	}
	d.members.Store(w)
	if got, want := d.shown(), []string{"10.0.0.1:7400", "10.0.0.2:7400"}; !slices.Equal(got, want) {
		t.Errorf("shown are %v, want %v", got, want)
	}
	cl, err := d.open()
	if err != nil {
		t.Fatalf("a nonsense address in gossip makes a client impossible: %v", err)
	}
	cl.Close()
}
