package server

import (
	"fmt"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// TestKeysBeginWhenTheLastServerIsUpgraded has one server of the release before
// keys in the group: every server refuses them with a word that clients try again
// after, partitions are owned as ever, and when that server runs this release
// keys begin, with no lease moved.
func TestKeysBeginWhenTheLastServerIsUpgraded(t *testing.T) {
	c := newCluster(t, 3)
	c.configs[2].hooks.feature = 1
	c.startAll()
	createKeyspace(t, c.client(), "orders", 8, 10*time.Second, leaseholdv1.Takeover_TAKEOVER_STRICT)
	crew := newCrew(t, c.servers())
	crew.join("w1", "orders")
	eventually(t, 20*time.Second, "w1 holds all", func() bool { return crew.held("w1") == 8 })
	before := crew.tokens()
	put := func(i int) error {
		conn, err := grpc.NewClient("passthrough:///"+c.running[i].Addrs().GRPC, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_, err = pb.NewKVClient(conn).Put(t.Context(), &pb.PutRequest{Key: fmt.Append(nil, "k", i), Value: []byte("v")})
		return err
	}
	const polite = "etcdserver: not all servers of the cluster know keys yet: they can be used when every server runs this release"
	// Longer than the leader waits between two looks. On a busy machine there may
	// be no leader for a moment.
	var said [3]bool
	for settled := time.Now().Add(2500 * time.Millisecond); time.Now().Before(settled) || said != [3]bool{true, true, true}; {
		for i := range c.running {
			switch err := put(i); {
			case status.Code(err) != codes.Unavailable:
				t.Fatalf("s%d with an old server in the group: %v", i+1, err)
			case status.Convert(err).Message() == polite:
				said[i] = true
			case time.Since(settled) > 30*time.Second:
				t.Fatalf("s%d with an old server in the group never says why: %v", i+1, err)
			}
		}
	}
	_, err := c.client().Coordination().CreateSequential(t.Context(), &leaseholdv1.CreateSequentialRequest{Prefix: "n/"})
	if leaseholdv1.ReasonOf(err) != leaseholdv1.ReasonFeature {
		t.Errorf("a number with an old server in the group: %v", err)
	}

	c.stopServer(2)
	c.configs[2].hooks.feature = state.MaxFeature
	c.start(2)
	for i := range c.running {
		eventually(t, 20*time.Second, "keys begin", func() bool { return put(i) == nil })
	}
	for p, token := range crew.tokens() {
		if before[p] != token {
			t.Errorf("partition %d moved in an upgrade: token %d, then %d", p, before[p], token)
		}
	}
}
