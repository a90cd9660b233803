package api

import (
	"io"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
)

// O-62: the answer to an open is lost; the retry finds the same session.
func TestRetryAfterALostReplyFindsTheSameSession(t *testing.T) {
	c := startCluster(t, 1)
	conn := c.leader(t).dial(t)
	createKeyspace(t, conn, "orders", 8)
	first := openWorker(t, conn, 11, "w1", "orders")
	first.holds(8)
	again := openWorker(t, conn, 11, "w1", "orders")
	if again.open.GetIncarnation() != first.open.GetIncarnation() {
		t.Errorf("incarnation %d, then %d", first.open.GetIncarnation(), again.open.GetIncarnation())
	}
	for part, token := range first.held {
		if again.held[part] != token {
			t.Errorf("partition %d: token %d, then %d", part, token, again.held[part])
		}
	}
	if err := first.end(); pb.ReasonOf(err) != pb.ReasonReplaced {
		t.Errorf("the older stream ended with %v", err)
	}
	st, err := pb.NewClusterServiceClient(conn).GetStatus(t.Context(), &pb.GetStatusRequest{})
	if err != nil || st.GetSessions() != 1 {
		t.Errorf("%d sessions, %v", st.GetSessions(), err)
	}
}

func TestSecondWorkerWithAnIDInUseIsRefused(t *testing.T) {
	c := startCluster(t, 1)
	conn := c.leader(t).dial(t)
	createKeyspace(t, conn, "orders", 8)
	first := openWorker(t, conn, 11, "w1", "orders")
	first.holds(8)
	second := dialWorker(t, conn, openRequest(12, "w1", "orders"))
	first.keepAlive(1, 0) // so that the ping is not the last thing it reads
	for {
		first.next()
		first.keepAlive(2, 0)
		select {
		case err := <-second.err:
			d := pb.DetailOf(err)
			if status.Code(err) != codes.AlreadyExists || d.GetReason() != pb.ReasonWorkerIDInUse || d.GetField() != "worker_id" || d.GetValue() != "w1" || d.GetOwner() == "" {
				t.Fatalf("error = %v, detail = %v", err, d)
			}
			if len(first.held) != 8 {
				t.Errorf("the first worker was disturbed: %v", first.held)
			}
			return
		default:
		}
	}
}

// O-16: a worker that died and is back inside its TTL does not refuse itself.
func TestRestartWithTheSameIDInsideTheTTL(t *testing.T) {
	c := startCluster(t, 1)
	conn := c.leader(t).dial(t)
	ks := createKeyspace(t, conn, "orders", 4, func(r *pb.CreateKeyspaceRequest) { r.TtlMs = 600_000; r.Takeover = pb.Takeover_TAKEOVER_FENCED })
	var last, incarnation uint64
	for i := range uint64(20) {
		p := openWorker(t, conn, 100+i, "w1", "orders")
		if p.open.GetIncarnation() <= incarnation {
			t.Fatalf("restart %d: incarnation %d after %d", i, p.open.GetIncarnation(), incarnation)
		}
		incarnation = p.open.GetIncarnation()
		if i == 0 { // later the planner regrants with care: the worker looks ill
			p.holds(4)
		}
		for part, token := range p.held {
			if token <= last {
				t.Fatalf("restart %d: partition %d has token %d after %d", i, part, token, last)
			}
		}
		old := &pb.LeaseRef{KeyspaceId: ks.GetId(), Partition: 0, Token: last}
		for _, token := range p.held {
			last = max(last, token)
		}
		if r := p.release(1, pb.ReleaseCause_RELEASE_CAUSE_ENDED, old); len(r.GetRefused()) != 1 {
			t.Fatalf("restart %d: the old token was accepted", i)
		}
		p.cancel() // the process is killed: its connections break
		if err := p.end(); err == nil {
			t.Fatal("stream went on")
		}
	}
}

// The same when the connection does not break: the old process is asked, does
// not answer, and the newest wins.
func TestSilentWorkerIsSuperseded(t *testing.T) {
	c := startCluster(t, 1)
	conn := c.leader(t).dial(t)
	ks := createKeyspace(t, conn, "orders", 2)
	old := openWorker(t, conn, 11, "w1", "orders")
	old.mute = true
	old.holds(2)
	p := dialWorker(t, conn, openRequest(12, "w1", "orders"))
	closed := old.until(func(m *pb.AttachResponse) bool { return m.GetClosed() != nil }).GetClosed()
	if got := closed.GetError().GetReason(); got != pb.ReasonSuperseded {
		t.Fatalf("closed with %q", got)
	}
	p.until(func(m *pb.AttachResponse) bool { return m.GetLeases() != nil })
	if len(p.held) != 0 {
		t.Fatalf("a strict lease moved before it was released: %v", p.held)
	}
	// It wakes up, ends its contexts and gives them back on the old stream.
	if r := old.release(1, pb.ReleaseCause_RELEASE_CAUSE_ENDED,
		&pb.LeaseRef{KeyspaceId: ks.GetId(), Partition: 0, Token: old.held[0]},
		&pb.LeaseRef{KeyspaceId: ks.GetId(), Partition: 1, Token: old.held[1]}); len(r.GetRefused()) > 0 {
		t.Errorf("refused: %v", r)
	}
	p.holds(2)
	if err := old.stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if err := old.end(); err != io.EOF {
		t.Errorf("the old stream ended with %v", err)
	}
}

func TestEvictedWorkerHearsItAndGivesBack(t *testing.T) {
	c := startCluster(t, 1)
	conn := c.leader(t).dial(t)
	ks := createKeyspace(t, conn, "orders", 1)
	p := openWorker(t, conn, 11, "w1", "orders")
	p.holds(1)
	w, err := pb.NewWorkerServiceClient(conn).EvictWorker(t.Context(), &pb.EvictWorkerRequest{Id: "w1"})
	if err != nil || w.GetState() != "evicted" || !w.GetDraining() {
		t.Fatalf("evict: %v, %v", w, err)
	}
	if got := p.until(func(m *pb.AttachResponse) bool { return m.GetClosed() != nil }).GetClosed().GetError().GetReason(); got != pb.ReasonEvicted {
		t.Errorf("closed with %q", got)
	}
	part, err := pb.NewPartitionServiceClient(conn).GetPartition(t.Context(), &pb.GetPartitionRequest{Keyspace: "orders"})
	if err != nil || part.GetState() != pb.PartitionState_PARTITION_STATE_BLOCKED || part.GetReason() == "" {
		t.Errorf("partition = %v, %v", part, err)
	}
	ref := &pb.LeaseRef{KeyspaceId: ks.GetId(), Token: p.held[0]}
	if r := p.release(1, pb.ReleaseCause_RELEASE_CAUSE_ENDED, ref); len(r.GetRefused()) > 0 {
		t.Errorf("refused: %v", r)
	}
}
