package api

import (
	"io"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
)

func TestWorkerIsToldItsLeases(t *testing.T) {
	c := startCluster(t, 1)
	conn := c.leader(t).dial(t)
	ks := createKeyspace(t, conn, "orders", 16)
	p := openWorker(t, conn, 11, "w1", "orders")
	if p.open.GetTtlMs() != keyspaceTTL.Milliseconds() || p.open.GetClusterId() == "" || len(p.open.GetKeyspaces()) != 1 || p.open.GetResumed() {
		t.Errorf("opened = %v", p.open)
	}
	p.holds(16)
	p.keepAlive(7, p.sum(ks.GetId()))
	ack := p.until(func(m *pb.AttachResponse) bool { return m.GetKeepAlive() != nil }).GetKeepAlive()
	if ack.GetSeq() != 7 || ack.GetTtlMs() != keyspaceTTL.Milliseconds() || ack.GetIndex() == 0 || ack.GetTerm() == 0 {
		t.Errorf("ack = %v", ack)
	}
	ws, err := pb.NewWorkerServiceClient(conn).ListWorkers(t.Context(), &pb.ListWorkersRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if len(ws.GetItems()) != 1 {
		t.Fatalf("workers = %v", ws)
	}
	w := ws.GetItems()[0]
	if w.GetId() != "w1" || !w.GetAttached() || w.GetHeld() != 16 || w.GetRunning() != 16 || w.GetState() != "live" || w.GetGossip() != "off" || w.GetAddr() == "" {
		t.Errorf("worker = %v", w)
	}
	if w.GetRemainingMs() <= 0 || w.GetRemainingMs() > w.GetTtlMs() {
		t.Errorf("remaining %d of %d ms", w.GetRemainingMs(), w.GetTtlMs())
	}
}

func TestLeaveDrainsAndCloses(t *testing.T) {
	c := startCluster(t, 1)
	conn := c.leader(t).dial(t)
	ks := createKeyspace(t, conn, "orders", 4)
	p := openWorker(t, conn, 11, "w1", "orders")
	p.holds(4)
	p.send(&pb.AttachRequest{Request: &pb.AttachRequest_Leave{Leave: &pb.LeaveSession{}}})
	drained := map[uint32]uint64{}
	for len(drained) < 4 {
		for _, g := range p.next().GetChanges().GetDrain() {
			if g.GetDrainMs() < 20_000 || g.GetDrainMs() > 30_000 {
				t.Errorf("drain_ms = %d", g.GetDrainMs())
			}
			for i, part := range g.GetPartitions() {
				drained[part] = g.GetTokens()[i]
			}
		}
	}
	var refs []*pb.LeaseRef
	for part, token := range drained {
		refs = append(refs, &pb.LeaseRef{KeyspaceId: ks.GetId(), Partition: part, Token: token})
	}
	if r := p.release(1, pb.ReleaseCause_RELEASE_CAUSE_DRAINED, refs...); len(r.GetRefused()) > 0 {
		t.Errorf("refused %v", r.GetRefused())
	}
	closed := p.until(func(m *pb.AttachResponse) bool { return m.GetClosed() != nil }).GetClosed()
	if got := closed.GetError().GetReason(); got != pb.ReasonLeft {
		t.Errorf("closed: %v", closed)
	}
	if err := p.end(); err != io.EOF {
		t.Errorf("stream ended with %v", err)
	}
}

func TestLeaveWithNothingHeldClosesAtOnce(t *testing.T) {
	c := startCluster(t, 1)
	conn := c.leader(t).dial(t)
	createKeyspace(t, conn, "orders", 1)
	holder := openWorker(t, conn, 11, "w1", "orders")
	holder.holds(1)
	p := openWorker(t, conn, 12, "w2", "orders")
	p.send(&pb.AttachRequest{Request: &pb.AttachRequest_Leave{Leave: &pb.LeaveSession{Restart: true}}})
	if got := p.until(func(m *pb.AttachResponse) bool { return m.GetClosed() != nil }).GetClosed().GetError().GetReason(); got != pb.ReasonLeft {
		t.Errorf("closed with %q", got)
	}
}

// O-17: a lease that is lost cannot be released by who held it.
func TestReleaseOfALeaseAlreadyLostTouchesNobody(t *testing.T) {
	c := startCluster(t, 1)
	conn := c.leader(t).dial(t)
	ks := createKeyspace(t, conn, "orders", 1)
	a := openWorker(t, conn, 11, "w1", "orders")
	a.holds(1)
	old := &pb.LeaseRef{KeyspaceId: ks.GetId(), Partition: 0, Token: a.held[0]}
	b := openWorker(t, conn, 12, "w2", "orders")
	if _, err := pb.NewPartitionServiceClient(conn).MovePartition(t.Context(), &pb.MovePartitionRequest{Keyspace: "orders", To: "w2"}); err != nil {
		t.Fatal(err)
	}
	a.until(func(m *pb.AttachResponse) bool { return len(m.GetChanges().GetDrain()) > 0 })
	if r := a.release(1, pb.ReleaseCause_RELEASE_CAUSE_DRAINED, old); len(r.GetRefused()) > 0 {
		t.Fatalf("the first release was refused: %v", r)
	}
	b.holds(1)
	token := b.held[0]
	if token <= old.GetToken() {
		t.Errorf("token %d after %d", token, old.GetToken())
	}
	for i, ref := range []*pb.LeaseRef{
		old, // again
		{KeyspaceId: ks.GetId(), Partition: 0, Token: 0},
		{KeyspaceId: ks.GetId(), Partition: 0, Token: token},       // another's
		{KeyspaceId: ks.GetId(), Partition: 0, Token: token + 999}, // never issued
		{KeyspaceId: ks.GetId(), Partition: 77, Token: token},      // no such partition
		{KeyspaceId: 99, Partition: 0, Token: token},               // no such keyspace
	} {
		if r := a.release(uint64(10+i), pb.ReleaseCause_RELEASE_CAUSE_ENDED, ref); len(r.GetRefused()) != 1 {
			t.Errorf("release of %v was not refused", ref)
		}
	}
	got, err := pb.NewPartitionServiceClient(conn).GetPartition(t.Context(), &pb.GetPartitionRequest{Keyspace: "orders"})
	if err != nil {
		t.Fatal(err)
	}
	if got.GetOwner() != "w2" || got.GetToken() != token || got.GetState() != pb.PartitionState_PARTITION_STATE_OWNED {
		t.Errorf("partition = %v", got)
	}
}

func TestResumeFindsWhatIsHeld(t *testing.T) {
	c := startCluster(t, 1)
	conn := c.leader(t).dial(t)
	createKeyspace(t, conn, "orders", 4)
	p := openWorker(t, conn, 11, "w1", "orders")
	p.holds(4)
	other := openWorker(t, conn, 12, "w2", "orders")
	moved, err := pb.NewPartitionServiceClient(conn).MovePartition(t.Context(), &pb.MovePartitionRequest{Keyspace: "orders", Partition: 2, To: "w2"})
	if err != nil || moved.GetState() != pb.PartitionState_PARTITION_STATE_DRAINING || moved.GetTarget() != "w2" || moved.GetCause() != "operator" {
		t.Fatalf("move: %v, %v", moved, err)
	}
	p.cancel()
	_ = p.end()
	again := dialWorker(t, conn, resumeRequest(11, "w1"))
	if o := again.next().GetOpened(); !o.GetResumed() || o.GetSessionId() != 11 {
		t.Fatalf("opened = %v", o)
	}
	list := again.next().GetLeases()
	drains := 0
	for _, g := range list.GetGranted() {
		if g.GetDrainMs() > 0 {
			drains += len(g.GetPartitions())
			if g.GetPartitions()[0] != 2 {
				t.Errorf("partition %d drains", g.GetPartitions()[0])
			}
		}
	}
	if drains != 1 || len(again.held) != 4 {
		t.Errorf("list = %v", list)
	}
	_ = other
}

func TestResumeOfAnUnknownSessionIsClosed(t *testing.T) {
	c := startCluster(t, 1)
	conn := c.leader(t).dial(t)
	createKeyspace(t, conn, "orders", 1)
	for worker, want := range map[string]string{"nobody": pb.ReasonUnknown, "w1": pb.ReasonSuperseded} {
		if worker == "w1" {
			openWorker(t, conn, 11, "w1", "orders")
		}
		p := dialWorker(t, conn, resumeRequest(99, worker))
		if got := p.next().GetClosed().GetError().GetReason(); got != want {
			t.Errorf("%s: closed with %q, want %q", worker, got, want)
		}
		if err := p.end(); err != io.EOF {
			t.Errorf("%s: ended with %v", worker, err)
		}
	}
}

func TestJoinKeyspaceLowersTheTTL(t *testing.T) {
	c := startCluster(t, 1)
	conn := c.leader(t).dial(t)
	createKeyspace(t, conn, "orders", 1)
	createKeyspace(t, conn, "bills", 2, func(r *pb.CreateKeyspaceRequest) { r.TtlMs = 5000 })
	p := openWorker(t, conn, 11, "w1", "orders")
	p.holds(1)
	join := func(request uint64, name string) *pb.KeyspaceJoined {
		p.send(&pb.AttachRequest{Request: &pb.AttachRequest_Join{Join: &pb.JoinKeyspace{Keyspace: name, Request: request}}})
		return p.until(func(m *pb.AttachResponse) bool { return m.GetJoined() != nil }).GetJoined()
	}
	if j := join(5, "bills"); j.GetTtlMs() != 5000 || j.GetPartitions() != 2 || j.GetRequest() != 5 || j.GetError() != nil {
		t.Errorf("joined = %v", j)
	}
	for name, reason := range map[string]string{"nothing": pb.ReasonNotFound, "a/b": pb.ReasonInvalid} {
		if j := join(6, name); j.GetError().GetReason() != reason || j.GetName() != name || j.GetRequest() != 6 {
			t.Errorf("join %s: %v", name, j)
		}
	}
}

func TestLastingDifferenceIsMendedByTheFullList(t *testing.T) {
	c := startCluster(t, 1)
	conn := c.leader(t).dial(t)
	ks := createKeyspace(t, conn, "orders", 8)
	p := openWorker(t, conn, 11, "w1", "orders")
	p.holds(8)
	sum := p.sum(ks.GetId())
	wrong := sum ^ pb.LeaseHash(ks.GetId(), 3, p.held[3]) // 3 does not run
	answers := func(seq, hash uint64) (lists int) {
		p.keepAlive(seq, hash)
		p.keepAlive(seq+1, sum) // its answer ends the wait
		p.until(func(m *pb.AttachResponse) bool {
			if m.GetLeases() != nil {
				lists++
			}
			return m.GetKeepAlive().GetSeq() == seq+1
		})
		return lists
	}
	if answers(1, wrong) != 0 {
		t.Error("a list after one difference: it may be on its way")
	}
	// Twice the same difference in a row.
	p.keepAlive(10, wrong)
	p.keepAlive(11, wrong)
	list := p.until(func(m *pb.AttachResponse) bool { return m.GetLeases() != nil }).GetLeases()
	if len(p.held) != 8 || list.GetIndex() == 0 {
		t.Errorf("list = %v", list)
	}
}

func TestImpossibleTokensAreNotBelieved(t *testing.T) {
	c := startCluster(t, 1)
	leader := c.leader(t)
	conn := leader.dial(t)
	createKeyspace(t, conn, "orders", 1)
	r := openRequest(11, "w1", "orders")
	r.GetOpen().HighestToken = 1 << 52
	if err := dialWorker(t, conn, r).end(); pb.DetailOf(err).GetField() != "highest_token" {
		t.Errorf("open with an impossible token: %v", err)
	}
	last := func() uint64 {
		st, err := pb.NewClusterServiceClient(conn).GetStatus(t.Context(), &pb.GetStatusRequest{})
		if err != nil {
			t.Fatal(err)
		}
		return st.GetLastToken()
	}
	before := last()
	r.GetOpen().HighestToken = before + 1000
	p := dialWorker(t, conn, r)
	p.until(func(m *pb.AttachResponse) bool { return len(p.held) == 1 })
	if p.held[0] <= before+1000 {
		t.Errorf("token %d, the worker had seen %d", p.held[0], before+1000)
	}
	p.send(&pb.AttachRequest{Request: &pb.AttachRequest_ReportToken{ReportToken: &pb.ReportToken{Token: before + 5000}}})
	eventually(t, "raised counter", func() bool { return last() == before+5000 })
	p.send(&pb.AttachRequest{Request: &pb.AttachRequest_ReportToken{ReportToken: &pb.ReportToken{Token: 1 << 60}}})
	p.keepAlive(1, 0)
	p.until(func(m *pb.AttachResponse) bool { return m.GetKeepAlive() != nil })
	if got := last(); got != before+5000 {
		t.Errorf("counter = %d", got)
	}
}

func TestExpiredSessionIsClosedAndRefused(t *testing.T) {
	c := startCluster(t, 1)
	conn := c.leader(t).dial(t)
	createKeyspace(t, conn, "orders", 1, func(r *pb.CreateKeyspaceRequest) { r.TtlMs = 1800 })
	p := openWorker(t, conn, 11, "w1", "orders")
	if got := p.until(func(m *pb.AttachResponse) bool { return m.GetClosed() != nil }).GetClosed().GetError().GetReason(); got != pb.ReasonExpired {
		t.Errorf("closed with %q", got)
	}
	if err := p.end(); err != io.EOF {
		t.Errorf("ended with %v", err)
	}
	_, err := pb.NewSessionServiceClient(conn).KeepAlive(t.Context(), &pb.KeepAliveRequest{SessionId: 11, Seq: 3})
	if status.Code(err) != codes.NotFound || pb.ReasonOf(err) != pb.ReasonExpired {
		t.Errorf("keep-alive: %v", err)
	}
}

func TestKeyspaceDeletionDrainsItsWorkers(t *testing.T) {
	c := startCluster(t, 1)
	conn := c.leader(t).dial(t)
	ks := createKeyspace(t, conn, "orders", 2)
	p := openWorker(t, conn, 11, "w1", "orders")
	p.holds(2)
	svc := pb.NewKeyspaceServiceClient(conn)
	if _, err := svc.DeleteKeyspace(t.Context(), &pb.DeleteKeyspaceRequest{Name: "orders"}); err != nil {
		t.Fatal(err)
	}
	list := p.until(func(m *pb.AttachResponse) bool { return m.GetLeases() != nil }).GetLeases()
	for _, g := range list.GetGranted() {
		if g.GetDrainMs() == 0 {
			t.Errorf("not draining: %v", g)
		}
	}
	p.release(1, pb.ReleaseCause_RELEASE_CAUSE_DRAINED,
		&pb.LeaseRef{KeyspaceId: ks.GetId(), Partition: 0, Token: p.held[0]},
		&pb.LeaseRef{KeyspaceId: ks.GetId(), Partition: 1, Token: p.held[1]})
	_, err := svc.GetKeyspace(t.Context(), &pb.GetKeyspaceRequest{Name: "orders"})
	if status.Code(err) != codes.NotFound {
		t.Errorf("after the last lease: %v", err)
	}
}
