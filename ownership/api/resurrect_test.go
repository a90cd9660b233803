package api

import (
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
)

// O-18: a session has expired; its keep-alive, its resumption and its release
// are refused, whether another has held the partition since or not, and the
// token never comes back. O-03: nor can its id be taken by another worker while
// it lives.
func TestKeepAliveAfterExpiryResurrectsNothing(t *testing.T) {
	c := startCluster(t, 1)
	conn := c.leader(t).dial(t)
	ks := createKeyspace(t, conn, "orders", 1, func(r *pb.CreateKeyspaceRequest) { r.TtlMs = 5000 })
	sessions := pb.NewSessionServiceClient(conn)
	a := openWorker(t, conn, 11, "a", "orders")
	a.holds(1)
	old := &pb.LeaseRef{KeyspaceId: ks.GetId(), Token: a.held[0]}
	if err := dialWorker(t, conn, openRequest(11, "thief", "orders")).end(); err == nil || status.Code(err) == codes.Unavailable {
		t.Errorf("another worker opened a session id in use: %v", err)
	}
	a.until(func(m *pb.AttachResponse) bool { return m.GetClosed().GetError().GetReason() == pb.ReasonExpired })
	refused := func(when string) {
		t.Helper()
		if _, err := sessions.KeepAlive(t.Context(), &pb.KeepAliveRequest{SessionId: 11, Seq: 9}); status.Code(err) != codes.NotFound {
			t.Errorf("%s: keep-alive: %v", when, err)
		}
		p := dialWorker(t, conn, resumeRequest(11, "a"))
		if got := p.next().GetClosed().GetError().GetReason(); got == "" {
			t.Errorf("%s: resumed", when)
		}
	}
	refused("with nobody in between")
	b := openWorker(t, conn, 12, "b", "orders")
	b.holds(1)
	if b.held[0] <= old.GetToken() {
		t.Errorf("token %d after %d", b.held[0], old.GetToken())
	}
	between := b.held[0]
	if r := b.release(1, pb.ReleaseCause_RELEASE_CAUSE_ENDED, &pb.LeaseRef{KeyspaceId: ks.GetId(), Token: between}); len(r.GetRefused()) > 0 {
		t.Fatalf("refused: %v", r)
	}
	refused("after another came and went")
	again := openWorker(t, conn, 13, "a", "orders")
	if r := again.release(1, pb.ReleaseCause_RELEASE_CAUSE_ENDED, old); len(r.GetRefused()) != 1 {
		t.Error("the old token was released by a new session")
	}
	got, err := pb.NewPartitionServiceClient(conn).GetPartition(t.Context(), &pb.GetPartitionRequest{Keyspace: "orders"})
	if err != nil || got.GetToken() < between || got.GetToken() == old.GetToken() {
		t.Errorf("partition = %v, %v; want a token from %d on", got, err, between)
	}
}
