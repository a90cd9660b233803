package api

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leasehold-dev/leasehold/ownership/controller"
	pb "github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"github.com/leasehold-dev/leasehold/raftstore/state"
)

func explainAt(t *testing.T, conn *grpc.ClientConn, keyspace string, p uint32, stale bool) *pb.Explanation {
	t.Helper()
	e, err := pb.NewPartitionServiceClient(conn).ExplainPartition(t.Context(), &pb.ExplainPartitionRequest{Keyspace: keyspace, Partition: p, Stale: stale})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func codesOf(e *pb.Explanation) (list []string) {
	for _, r := range e.GetReasons() {
		list = append(list, r.GetCode())
	}
	return list
}

// awaitReason asks until the first reason is code, and returns that reason.
func awaitReason(t *testing.T, conn *grpc.ClientConn, keyspace string, p uint32, code string) (*pb.Explanation, *pb.Reason) {
	t.Helper()
	var e *pb.Explanation
	eventually(t, "the first reason is "+code, func() bool {
		e = explainAt(t, conn, keyspace, p, false)
		return len(e.GetReasons()) > 0 && e.GetReasons()[0].GetCode() == code
	})
	return e, e.GetReasons()[0]
}

func verdicts(e *pb.Explanation) string {
	var list []string
	for _, c := range e.GetCandidates() {
		list = append(list, c.GetWorker()+" "+c.GetVerdict())
	}
	slices.Sort(list)
	return strings.Join(list, ", ")
}

// Why a partition has no owner, or has this one, is said as it is: each state
// of things is brought about, and its reason comes first.
func TestReasonsAreTheTrueOnes(t *testing.T) {
	c := startCluster(t, 1)
	conn := c.leader(t).dial(t)
	workers := pb.NewWorkerServiceClient(conn)
	createKeyspace(t, conn, "empty", 1)
	if _, r := awaitReason(t, conn, "empty", 0, string(controller.CodeNoWorker)); !strings.Contains(r.GetText(), "no worker has joined keyspace empty") {
		t.Errorf("without a worker: %v", r)
	}

	createKeyspace(t, conn, "orders", 3)
	first := dialWorker(t, conn, &pb.AttachRequest{Request: &pb.AttachRequest_Open{Open: &pb.OpenSession{SessionId: 11, WorkerId: "w1", Keyspaces: []string{"orders"}, Capacity: 2}}})
	first.holds(2)
	var left uint32
	for first.held[left] != 0 {
		left++
	}
	e, r := awaitReason(t, conn, "orders", left, string(controller.CodeCapacity))
	if !strings.Contains(r.GetText(), "1 full; they hold 2 of the 2") || verdicts(e) != "w1 full" || e.GetCandidates()[0].GetNote() == "" {
		t.Errorf("more partitions than room: %v, %s", r, verdicts(e))
	}
	owned := (left + 1) % 3
	e, r = awaitReason(t, conn, "orders", owned, "owner_preferred")
	if got := codesOf(e); got[1] != "moved" || !strings.Contains(e.GetReasons()[1].GetText(), "handed out for the first time") || verdicts(e) != "w1 owner" {
		t.Errorf("owned: %v %v", r, got)
	}
	if h := e.GetHistory(); len(h) != 1 || h[0].GetKind() != "grant" || h[0].GetToken() != first.held[owned] || e.GetHistoryCut() {
		t.Errorf("history %v, cut %v", h, e.GetHistoryCut())
	}

	second := openWorker(t, conn, 12, "w2", "orders")
	second.holds(1)
	if _, err := workers.DrainWorker(t.Context(), &pb.DrainWorkerRequest{Id: "w1"}); err != nil {
		t.Fatal(err)
	}
	e, r = awaitReason(t, conn, "orders", owned, "draining")
	if !strings.Contains(r.GetText(), "w1 has been asked to finish it for w2, cause drain") || slices.Contains(codesOf(e), "owner_kept") || slices.Contains(codesOf(e), "owner_preferred") {
		t.Errorf("draining: %v, %v", r, codesOf(e))
	}
	if _, err := workers.EvictWorker(t.Context(), &pb.EvictWorkerRequest{Id: "w1"}); err != nil {
		t.Fatal(err)
	}
	e, r = awaitReason(t, conn, "orders", owned, string(controller.CodeBlocked))
	if !strings.Contains(r.GetText(), "w1") || slices.Contains(codesOf(e), "owner_kept") {
		t.Errorf("evicted: %v, %v", r, codesOf(e))
	}
	if _, err := workers.DrainWorker(t.Context(), &pb.DrainWorkerRequest{Id: "w2"}); err != nil {
		t.Fatal(err)
	}
	second.until(func(m *pb.AttachResponse) bool { return len(m.GetChanges().GetDrain()) > 0 })
	second.release(1, pb.ReleaseCause_RELEASE_CAUSE_DRAINED, &pb.LeaseRef{KeyspaceId: keyspaceID(t, conn, "orders"), Partition: left, Token: second.held[left]})
	e, r = awaitReason(t, conn, "orders", left, string(controller.CodeNoWorker))
	if !strings.Contains(r.GetText(), "1 barred, 1 drained") && !strings.Contains(r.GetText(), "1 drained, 1 barred") || !strings.Contains(r.GetNext(), "workers undrain w2") {
		t.Errorf("all drained: %v", r)
	}
	if lost := e.GetReasons()[1]; lost.GetCode() != "lost" || !strings.Contains(lost.GetText(), "an operator drained w2, and it released it") {
		t.Errorf("lost: %v", lost)
	}
}

// A handler that fails: who failed, with what, and how long it waits.
func TestReasonsOfAFailure(t *testing.T) {
	c := startCluster(t, 1)
	conn := c.leader(t).dial(t)
	ks := createKeyspace(t, conn, "orders", 1)
	for i, id := range []string{"w1", "w2", "w3"} {
		w := openWorker(t, conn, uint64(11+i), id, "orders")
		w.holds(1)
		w.send(&pb.AttachRequest{Request: &pb.AttachRequest_Release{Release: &pb.ReleaseLeases{
			Request: 1, Cause: pb.ReleaseCause_RELEASE_CAUSE_FAILED, Error: "no such table",
			Leases: []*pb.LeaseRef{{KeyspaceId: ks.GetId(), Partition: 0, Token: w.held[0]}},
		}}})
		if i == 2 {
			break
		}
		e, r := awaitReason(t, conn, "orders", 0, string(controller.CodeBackoff))
		if !strings.Contains(r.GetText(), "no such table") || !strings.Contains(r.GetText(), " on w1") || !strings.Contains(verdicts(e), id+" failed") {
			t.Errorf("after %s has failed: %v, %s", id, r, verdicts(e))
		}
	}
	_, r := awaitReason(t, conn, "orders", 0, string(controller.CodeQuarantined))
	if !strings.Contains(r.GetText(), "3 failures on w1, w2, w3 (last error: no such table)") || !strings.Contains(r.GetNext(), "partitions retry orders/0") {
		t.Errorf("quarantined: %v", r)
	}
}

// What an answer says of a partition and why is of one lease, however quickly leases
// come and go: one with an owner waits for nothing that only one without does.
func TestReasonsAreOfTheLeaseThatIsShown(t *testing.T) {
	c := startCluster(t, 1)
	conn := c.leader(t).dial(t)
	ks := createKeyspace(t, conn, "orders", 1)
	w := openWorker(t, conn, 11, "w1", "orders")
	ctx, stop := context.WithCancel(t.Context())
	var group sync.WaitGroup
	defer group.Wait()
	defer stop()
	for range 4 {
		group.Go(func() {
			for ctx.Err() == nil {
				e, err := pb.NewPartitionServiceClient(conn).ExplainPartition(ctx, &pb.ExplainPartitionRequest{Keyspace: "orders", Partition: 0})
				if err != nil {
					if ctx.Err() == nil {
						t.Error(err)
					}
					return
				}
				waits := slices.Contains(codesOf(e), string(controller.CodePending)) || slices.Contains(codesOf(e), string(controller.CodeBackoff))
				if waits && e.GetPartition().GetOwner() != "" {
					t.Errorf("owned by %s, and: %v", e.GetPartition().GetOwner(), e.GetReasons())
					return
				}
			}
		})
	}
	for i := range uint64(100) {
		w.holds(1)
		w.release(1+i, pb.ReleaseCause_RELEASE_CAUSE_REFUSED, &pb.LeaseRef{KeyspaceId: ks.GetId(), Partition: 0, Token: w.held[0]})
		delete(w.held, 0)
		if _, err := pb.NewPartitionServiceClient(conn).MovePartition(t.Context(), &pb.MovePartitionRequest{Keyspace: "orders", Partition: 0, To: "w1"}); err != nil {
			t.Fatal(err)
		}
		w.send(&pb.AttachRequest{Request: &pb.AttachRequest_KeepAlive{KeepAlive: &pb.KeepAliveRequest{SessionId: 11, Seq: i + 1}}})
	}
}

// A follower asks the leader; with stale it says what it knows itself, and that
// it knows no plan.
func TestExplainAtAFollower(t *testing.T) {
	c := startCluster(t, 3)
	leader, follower := c.leader(t).dial(t), c.follower(t).dial(t)
	createKeyspace(t, leader, "orders", 4)
	w := openWorker(t, leader, 11, "w1", "orders")
	w.holds(4)
	e, _ := awaitReason(t, follower, "orders", 2, "owner_preferred")
	if verdicts(e) != "w1 owner" {
		t.Errorf("forwarded: %v, %s", codesOf(e), verdicts(e))
	}
	eventually(t, "the follower has applied it", func() bool {
		e, err := pb.NewPartitionServiceClient(follower).ExplainPartition(t.Context(), &pb.ExplainPartitionRequest{Keyspace: "orders", Partition: 2, Stale: true})
		return err == nil && len(e.GetHistory()) == 1
	})
	e = explainAt(t, follower, "orders", 2, true)
	if len(e.GetCandidates()) > 0 || e.GetPartition().GetOwner() != "w1" || !slices.Equal(codesOf(e), []string{"moved", "no_plan"}) {
		t.Errorf("stale: %v", e)
	}
	for _, conn := range []*grpc.ClientConn{leader, follower} {
		for _, x := range []struct {
			r    *pb.ExplainPartitionRequest
			code codes.Code
			text string
		}{
			{&pb.ExplainPartitionRequest{Keyspace: "orders", Partition: 4}, codes.NotFound, "0 to 3"},
			{&pb.ExplainPartitionRequest{Keyspace: "orders", Partition: 1<<32 - 1, Stale: true}, codes.NotFound, "0 to 3"},
			{&pb.ExplainPartitionRequest{Keyspace: "bills"}, codes.NotFound, "bills"},
			{&pb.ExplainPartitionRequest{Keyspace: "a/b"}, codes.InvalidArgument, "keyspace"},
		} {
			if _, err := pb.NewPartitionServiceClient(conn).ExplainPartition(t.Context(), x.r); status.Code(err) != x.code || !strings.Contains(err.Error(), x.text) || pb.DetailOf(err) == nil {
				t.Errorf("%v: %v", x.r, err)
			}
		}
	}
}

// Who asks a lone server because nobody leads is not sent back to the leader.
func TestExplainWithoutALeader(t *testing.T) {
	c := startCluster(t, 3)
	leader, follower := c.leader(t), c.follower(t)
	createKeyspace(t, leader.dial(t), "orders", 4)
	conn := follower.dial(t)
	last := func() *pb.Reason {
		r := explainAt(t, conn, "orders", 2, true).GetReasons()
		return r[len(r)-1]
	}
	eventually(t, "the follower has applied it", func() bool {
		_, err := pb.NewPartitionServiceClient(conn).ExplainPartition(t.Context(), &pb.ExplainPartitionRequest{Keyspace: "orders", Stale: true})
		return err == nil
	})
	if r := last(); r.GetNext() != "ask without --stale" {
		t.Errorf("with a leader: %v", r)
	}
	for _, s := range c.servers {
		if s != follower {
			s.kill()
		}
	}
	eventually(t, "it says that there is no leader", func() bool {
		r := last()
		return r.GetCode() == "no_plan" && strings.Contains(r.GetText(), "none now") && strings.HasPrefix(r.GetNext(), "leasehold doctor")
	})
}

// A partition's history is its own, the newest part of it, and says if it is cut.
func TestHistoryIsTheNewestOfThePartition(t *testing.T) {
	c := startCluster(t, 1)
	conn := c.leader(t).dial(t)
	ks := createKeyspace(t, conn, "orders", 2)
	w := openWorker(t, conn, 11, "w1", "orders")
	w.holds(2)
	const times = maxHistory/2 + 3
	for i := range uint64(times) {
		w.send(&pb.AttachRequest{Request: &pb.AttachRequest_KeepAlive{KeepAlive: &pb.KeepAliveRequest{SessionId: 11, Seq: i + 1}}})
		w.release(1+i, pb.ReleaseCause_RELEASE_CAUSE_REFUSED, &pb.LeaseRef{KeyspaceId: ks.GetId(), Partition: 1, Token: w.held[1]})
		delete(w.held, 1)
		if _, err := pb.NewPartitionServiceClient(conn).MovePartition(t.Context(), &pb.MovePartitionRequest{Keyspace: "orders", Partition: 1, To: "w1"}); err != nil {
			t.Fatal(err)
		}
		w.holds(2)
	}
	e := explainAt(t, conn, "orders", 1, false)
	h := e.GetHistory()
	if len(h) != maxHistory || !e.GetHistoryCut() || h[len(h)-1].GetToken() != w.held[1] {
		t.Fatalf("%d events, cut %v, the last %v; token %d", len(h), e.GetHistoryCut(), h[len(h)-1], w.held[1])
	}
	for i, ev := range h {
		if ev.GetPartition() != 1 || i > 0 && ev.GetRevision() <= h[i-1].GetRevision() {
			t.Errorf("event %d: %v", i, ev)
		}
	}
	if other := explainAt(t, conn, "orders", 0, false); len(other.GetHistory()) != 1 || other.GetHistoryCut() {
		t.Errorf("the quiet one: %v", other.GetHistory())
	}
}

func keyspaceID(t *testing.T, conn *grpc.ClientConn, name string) uint32 {
	t.Helper()
	ks, err := pb.NewKeyspaceServiceClient(conn).GetKeyspace(t.Context(), &pb.GetKeyspaceRequest{Name: name})
	if err != nil {
		t.Fatal(err)
	}
	return ks.GetId()
}

// fingerprint is the whole state of a server, in short, at a revision and index.
func fingerprint(t *testing.T, s *server) string {
	t.Helper()
	var snap *state.Snapshot
	s.store.View(func(st *state.State) { snap = st.Snapshot() })
	var b bytes.Buffer
	if err := snap.Write(&b); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%x", sha256.Sum256(b.Bytes()))
}
