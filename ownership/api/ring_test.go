package api

import (
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"github.com/leasehold-dev/leasehold/ring"
)

func ringAt(t *testing.T, conn *grpc.ClientConn, points bool) *pb.Ring {
	t.Helper()
	r, err := pb.NewRingServiceClient(conn).GetRing(t.Context(), &pb.GetRingRequest{Keyspace: "orders", Points: points})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// The ring that is shown is that of the workers there are, with what each holds,
// at every server; its points and its placement agree with its sums.
func TestGetRing(t *testing.T) {
	const partitions = 32
	c := startCluster(t, 3)
	leader, follower := c.leader(t).dial(t), c.follower(t).dial(t)
	createKeyspace(t, leader, "orders", partitions)
	if r := ringAt(t, leader, true); len(r.GetMembers())+len(r.GetPoints())+len(r.GetPlacement()) > 0 || r.GetVersion() != "" {
		t.Errorf("without workers: %v", r)
	}
	openWorker(t, leader, 11, "w1", "orders").holds(partitions)
	alone := ringAt(t, leader, false)
	if m := alone.GetMembers(); len(m) != 1 || m[0].GetPlaced() != partitions || m[0].GetHeld() != partitions || m[0].GetFair() != partitions || m[0].GetState() != "live" || alone.GetIndex() == 0 {
		t.Errorf("one worker: %v", alone)
	}
	openWorker(t, leader, 12, "w2", "orders")
	var r *pb.Ring
	eventually(t, "the planner has a ring of both", func() bool {
		r = ringAt(t, follower, true)
		return len(r.GetMembers()) == 2 && r.GetMembers()[1].GetPlaced() > 0
	})
	if r.GetVersion() == alone.GetVersion() || r.GetVersion() != ringAt(t, leader, false).GetVersion() {
		t.Errorf("versions %s alone, %s of two", alone.GetVersion(), r.GetVersion())
	}
	want, err := ring.New([]string{"w1", "w2"}, partitions)
	if err != nil {
		t.Fatal(err)
	}
	placed := make([]int64, 2)
	for p, m := range r.GetPlacement() {
		placed[m]++
		if int32(m) != want.Owner(uint32(p)) {
			t.Errorf("partition %d is placed with %d, the ring of w1 and w2 has %d", p, m, want.Owner(uint32(p)))
		}
	}
	var held int64
	var fair float64
	for i, m := range r.GetMembers() {
		if m.GetPlaced() != placed[i] || m.GetMost() < int64(m.GetFair()) {
			t.Errorf("%v: placement has %d", m, placed[i])
		}
		held, fair = held+m.GetHeld(), fair+m.GetFair()
	}
	if held != partitions || fair != partitions || len(r.GetPlacement()) != partitions {
		t.Errorf("held %d, fair %f", held, fair)
	}
	if len(r.GetPoints()) != 40 || !slices.IsSortedFunc(r.GetPoints(), func(a, b *pb.RingPoint) int { return strings.Compare(a.GetPosition(), b.GetPosition()) }) {
		t.Errorf("points %v", r.GetPoints())
	}
	for _, p := range r.GetPoints() {
		if len(p.GetPosition()) != 16 || p.GetMember() > 1 {
			t.Errorf("point %v", p)
		}
	}
}

// A simulation is refused with the field that is wrong, and leaves the whole state
// as it was, whatever it tells.
func TestSimulateRingChangesNothing(t *testing.T) {
	c := startCluster(t, 3)
	leader := c.leader(t)
	conn := leader.dial(t)
	createKeyspace(t, conn, "orders", 16)
	openWorker(t, conn, 11, "w1", "orders").holds(16)
	follower := pb.NewRingServiceClient(c.follower(t).dial(t))
	ask := &pb.SimulateRingRequest{Keyspace: "orders", Add: []*pb.SimulatedWorker{{Id: "w2"}, {Id: "w3", Capacity: 2}}}
	// The log moves its clock on now and then: try until it stood still meanwhile.
	eventually(t, "state compared before and after", func() bool {
		index := leader.store.Status().AppliedIndex
		before := fingerprint(t, leader)
		m, err := follower.SimulateRing(t.Context(), ask)
		if err != nil || len(m.GetMoves()) == 0 {
			t.Fatalf("%v, %v", m, err)
		}
		after := fingerprint(t, leader)
		if leader.store.Status().AppliedIndex != index {
			return false
		}
		if before != after {
			t.Fatal("the state has changed under the same index")
		}
		return true
	})
	many := make([]*pb.SimulatedWorker, maxSimulated+1)
	for i := range many {
		many[i] = &pb.SimulatedWorker{Id: "x"}
	}
	for _, x := range []struct {
		r     *pb.SimulateRingRequest
		code  codes.Code
		field string
	}{
		{&pb.SimulateRingRequest{Keyspace: "bills"}, codes.NotFound, "keyspace"},
		{&pb.SimulateRingRequest{Keyspace: "orders", Remove: []string{"w9"}}, codes.NotFound, "remove"},
		{&pb.SimulateRingRequest{Keyspace: "orders", Add: []*pb.SimulatedWorker{{Id: "w1"}}}, codes.AlreadyExists, "add.id"},
		{&pb.SimulateRingRequest{Keyspace: "orders", Add: []*pb.SimulatedWorker{{Id: "a b"}}}, codes.InvalidArgument, "add.id"},
		{&pb.SimulateRingRequest{Keyspace: "orders", Add: []*pb.SimulatedWorker{{Id: "w5", Zone: "a\x00"}}}, codes.InvalidArgument, "add.zone"},
		{&pb.SimulateRingRequest{Keyspace: "orders", Add: []*pb.SimulatedWorker{{Id: "w5"}, {Id: "w5"}}}, codes.InvalidArgument, "add.id"},
		{&pb.SimulateRingRequest{Keyspace: "orders", Remove: []string{"w1", "w1"}}, codes.InvalidArgument, "remove"},
		{&pb.SimulateRingRequest{Keyspace: "orders", Add: many}, codes.InvalidArgument, "add"},
	} {
		_, err := follower.SimulateRing(t.Context(), x.r)
		if d := pb.DetailOf(err); status.Code(err) != x.code || d.GetField() != x.field {
			t.Errorf("%.80v: %v, field %q", x.r, err, d.GetField())
		}
	}
}
