package etcdapi

import (
	"errors"
	"io"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// A client may send what it has to ask and half-close at once: it is answered.
func TestKeepAliveAnswersWhoSendsNoMore(t *testing.T) {
	c := startCluster(t, 1, options{})
	c.ready(t)
	leases := pb.NewLeaseClient(c.leader(t).conn)
	ctx := testContext(t)
	if _, err := leases.LeaseGrant(ctx, &pb.LeaseGrantRequest{ID: 7, TTL: 60}); err != nil {
		t.Fatal(err)
	}
	for range 20 {
		stream, err := leases.LeaseKeepAlive(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range []int64{7, 8} {
			if err := stream.Send(&pb.LeaseKeepAliveRequest{ID: id}); err != nil {
				t.Fatal(err)
			}
		}
		if err := stream.CloseSend(); err != nil {
			t.Fatal(err)
		}
		for i, want := range []int64{60, 0} {
			if r, err := stream.Recv(); err != nil || r.TTL != want {
				t.Fatalf("answer %d is %v, %v, want TTL %d", i, r, err, want)
			}
		}
		if r, err := stream.Recv(); !errors.Is(err, io.EOF) {
			t.Fatalf("after the last answer comes %v, %v", r, err)
		}
	}
}
