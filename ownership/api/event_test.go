package api

import (
	"slices"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"github.com/leasehold-dev/leasehold/raftstore/state"
)

func TestWatchResumesWithoutGapOrRepetition(t *testing.T) {
	c := startCluster(t, 3)
	conn := c.leader(t).dial(t)
	svc := pb.NewEventServiceClient(conn)
	list, err := svc.ListEvents(t.Context(), &pb.ListEventsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	createKeyspace(t, conn, "orders", 32)
	createKeyspace(t, conn, "bills", 1)
	w := openWorker(t, conn, 11, "w1", "orders", "bills")
	w.holds(32)
	read := func(s *server, after uint64, keyspace string, n int) (evs []*pb.Event) {
		stream, err := pb.NewEventServiceClient(s.dial(t)).WatchEvents(t.Context(), &pb.WatchEventsRequest{AfterRevision: after, Keyspace: keyspace})
		if err != nil {
			t.Fatal(err)
		}
		for len(evs) < n {
			m, err := stream.Recv()
			if err != nil {
				t.Fatal(err)
			}
			evs = append(evs, m.GetItems()...)
		}
		return evs
	}
	first := read(c.leader(t), list.GetRevision(), "", 3)[:3]
	rest := read(c.follower(t), first[2].GetRevision(), "", 30) // at another server
	for i, ev := range slices.Concat(first, rest) {
		if ev.GetRevision() != list.GetRevision()+uint64(i)+1 {
			t.Fatalf("event %d has revision %d, after %d", i, ev.GetRevision(), list.GetRevision())
		}
	}
	grants := read(c.leader(t), list.GetRevision(), "orders", 33)
	seen := map[uint32]bool{}
	for _, ev := range grants {
		if ev.GetKeyspace() != "orders" {
			t.Errorf("event of %q", ev.GetKeyspace())
		}
		if ev.GetKind() == "grant" {
			if ev.Partition == nil || ev.GetToken() == 0 || ev.GetWorker() != "w1" || ev.GetSessionId() != 11 || ev.GetTime().AsTime().Year() < 2025 {
				t.Errorf("grant = %v", ev)
			}
			seen[ev.GetPartition()] = true
		}
	}
	if !seen[0] || len(seen) < 30 {
		t.Errorf("grants of %d partitions", len(seen))
	}
	one, err := svc.ListEvents(t.Context(), &pb.ListEventsRequest{Keyspace: "orders", Partition: ptr(uint32(5)), Limit: 10})
	if err != nil || len(one.GetItems()) != 1 || one.GetItems()[0].GetPartition() != 5 {
		t.Errorf("events of partition 5: %v, %v", one, err)
	}
	none, err := svc.ListEvents(t.Context(), &pb.ListEventsRequest{Cause: "evicted"})
	if err != nil || len(none.GetItems()) != 0 || none.GetRevision() == 0 {
		t.Errorf("events with cause evicted: %v, %v", none, err)
	}
}

func TestTooOldAWatchIsToldWhereToGoOn(t *testing.T) {
	c := startCluster(t, 1)
	conn := c.leader(t).dial(t)
	ks := createKeyspace(t, conn, "orders", state.LedgerSize)
	w := openWorker(t, conn, 11, "w1", "orders")
	w.holds(state.LedgerSize)
	w.release(1, pb.ReleaseCause_RELEASE_CAUSE_YIELD, &pb.LeaseRef{KeyspaceId: ks.GetId(), Partition: 3, Token: w.held[3]})
	svc := pb.NewEventServiceClient(conn)
	recv := func(after uint64) (*pb.WatchEventsResponse, error) {
		stream, err := svc.WatchEvents(t.Context(), &pb.WatchEventsRequest{AfterRevision: after})
		if err != nil {
			t.Fatal(err)
		}
		m, err := stream.Recv()
		if err == nil && len(m.GetItems()) == 0 {
			m, err = stream.Recv()
		}
		return m, err
	}
	_, err := recv(1)
	d := pb.DetailOf(err)
	if status.Code(err) != codes.OutOfRange || d.GetReason() != pb.ReasonCompacted || d.GetRevision() == 0 {
		t.Fatalf("%v, detail %v", err, d)
	}
	eventually(t, "watch that goes on", func() bool {
		m, err := recv(d.GetRevision())
		if next := pb.DetailOf(err); next.GetReason() == pb.ReasonCompacted && next.GetRevision() > d.GetRevision() {
			d = next // more has happened meanwhile
			return false
		}
		if err != nil || m.GetItems()[0].GetRevision() != d.GetRevision()+1 {
			t.Fatalf("going on from %d: %v", d.GetRevision(), err)
		}
		return true
	})
	list, err := svc.ListEvents(t.Context(), &pb.ListEventsRequest{Limit: 5})
	if err != nil || len(list.GetItems()) != 5 || list.GetItems()[4].GetRevision() != list.GetRevision() {
		t.Errorf("the newest five: %v, %v", list, err)
	}
}

// A router learns where the owner is from the grant itself, at any server, and
// which keyspace of a name it was.
func TestGrantsNameTheEndpointAndTheKeyspace(t *testing.T) {
	c := startCluster(t, 3)
	conn := c.leader(t).dial(t)
	ks := createKeyspace(t, conn, "orders", 4)
	open := openRequest(11, "w1", "orders")
	open.GetOpen().Endpoint = "10.0.0.1:9000"
	w := dialWorker(t, conn, open)
	w.holds(4)
	stream, err := pb.NewEventServiceClient(c.follower(t).dial(t)).WatchEvents(t.Context(), &pb.WatchEventsRequest{AfterRevision: 1, Keyspace: "orders"})
	if err != nil {
		t.Fatal(err)
	}
	for grants := 0; grants < 4; {
		m, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		for _, ev := range m.GetItems() {
			want := ""
			if ev.GetKind() == "grant" {
				grants++
				want = "10.0.0.1:9000"
			}
			if ev.GetEndpoint() != want || ev.GetKeyspaceId() != ks.GetId() {
				t.Errorf("event %v, want endpoint %q and keyspace %d", ev, want, ks.GetId())
			}
		}
	}
	list, err := pb.NewEventServiceClient(conn).ListEvents(t.Context(), &pb.ListEventsRequest{Keyspace: "orders", Partition: ptr(uint32(0))})
	if err != nil || len(list.GetItems()) != 1 || list.GetItems()[0].GetEndpoint() != "10.0.0.1:9000" {
		t.Errorf("listed %v, %v", list, err)
	}
}

// A quiet watch cannot be told from a dead one, unless it asks for heartbeats.
func TestAQuietWatchHasAPulse(t *testing.T) {
	c := startCluster(t, 3)
	s := c.follower(t)
	watch := func(heartbeat int64) (*pb.WatchEventsResponse, error) {
		stream, err := pb.NewEventServiceClient(s.dial(t)).WatchEvents(t.Context(), &pb.WatchEventsRequest{HeartbeatMs: heartbeat})
		if err != nil {
			t.Fatal(err)
		}
		if m, err := stream.Recv(); err != nil {
			return m, err
		}
		for {
			// The follower may yet be catching up.
			if m, err := stream.Recv(); err != nil || len(m.GetItems()) == 0 {
				return m, err
			}
		}
	}
	m, err := watch(100)
	if err != nil || m.GetRevision() == 0 || m.GetAgeMs() > 5000 {
		t.Errorf("heartbeat %v, %v", m, err)
	}
	for _, bad := range []int64{-1, 1, 99, 60_001} {
		if _, err := watch(bad); status.Code(err) != codes.InvalidArgument || pb.DetailOf(err).GetField() != "heartbeat_ms" {
			t.Errorf("heartbeat_ms %d: %v", bad, err)
		}
	}
}
