package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/leasehold-dev/leasehold/ownership/auth"
	pb "github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
)

func TestAnyServerAnswersAnyCall(t *testing.T) {
	c := startCluster(t, 3)
	follower := c.follower(t)
	conn := follower.dial(t)
	createKeyspace(t, conn, "orders", 8)
	if _, err := pb.NewKeyspaceServiceClient(conn).GetKeyspace(t.Context(), &pb.GetKeyspaceRequest{Name: "orders"}); err != nil {
		t.Fatal(err) // linearizable: what was acknowledged is seen
	}
	// An error of the leader's comes through with all it says.
	_, err := pb.NewKeyspaceServiceClient(conn).CreateKeyspace(t.Context(), &pb.CreateKeyspaceRequest{Name: "orders", Partitions: 8, TtlMs: 10_000})
	if d := pb.DetailOf(err); status.Code(err) != codes.AlreadyExists || d.GetField() != "name" {
		t.Errorf("%v, detail %v", err, d)
	}
	w := openWorker(t, conn, 11, "w1", "orders")
	w.holds(8)
	w.keepAlive(1, 0)
	w.until(func(m *pb.AttachResponse) bool { return m.GetKeepAlive().GetSeq() == 1 })
	ack, err := pb.NewSessionServiceClient(conn).KeepAlive(t.Context(), &pb.KeepAliveRequest{SessionId: 11, Seq: 9})
	if err != nil || ack.GetSeq() != 9 || ack.GetTtlMs() != keyspaceTTL.Milliseconds() {
		t.Errorf("relayed keep-alive: %v, %v", ack, err)
	}
	ws, err := pb.NewWorkerServiceClient(conn).ListWorkers(t.Context(), &pb.ListWorkersRequest{})
	if err != nil || len(ws.GetItems()) != 1 || !ws.GetItems()[0].GetAttached() {
		t.Fatalf("workers = %v, %v", ws, err)
	}
	if addr := ws.GetItems()[0].GetAddr(); addr == "" || addr == follower.addr {
		t.Errorf("the session was opened from %q", addr)
	}
	if err := w.stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if err := w.end(); err != io.EOF {
		t.Errorf("forwarded stream ended with %v", err)
	}
}

func TestStaleAnswersAreLocalAndSayTheirAge(t *testing.T) {
	c := startCluster(t, 3)
	leader, follower := c.leader(t), c.follower(t)
	createKeyspace(t, leader.dial(t), "orders", 8)
	keyspaces := pb.NewKeyspaceServiceClient(follower.dial(t))
	eventually(t, "replicated keyspace", func() bool {
		var header metadata.MD
		r, err := keyspaces.ListKeyspaces(t.Context(), &pb.ListKeyspacesRequest{Stale: true}, grpc.Header(&header))
		if err != nil || len(header.Get(ageKey)) != 1 {
			t.Fatalf("%v, header %v", err, header)
		}
		return len(r.GetItems()) == 1
	})
	var header metadata.MD
	st, err := pb.NewClusterServiceClient(follower.dial(t)).GetStatus(t.Context(), &pb.GetStatusRequest{}, grpc.Header(&header))
	if err != nil || st.GetServerId() != follower.id || st.GetLeaderId() != leader.id || st.GetLeaderGrpcAddr() != leader.addr || !st.GetReady() {
		t.Errorf("status = %v, %v", st, err)
	}
	if len(header.Get(ageKey)) != 1 {
		t.Errorf("header = %v", header)
	}
	peers, err := pb.NewClusterServiceClient(follower.dial(t)).ListPeers(t.Context(), &pb.ListPeersRequest{})
	if err != nil || len(peers.GetItems()) != 3 {
		t.Errorf("peers = %v, %v", peers, err)
	}
}

func TestForwardedCallIsNotForwardedAgain(t *testing.T) {
	c := startCluster(t, 3)
	conn := c.follower(t).dialWith(t)
	ctx := metadata.AppendToOutgoingContext(t.Context(), auth.ForwardedKey, "1")
	_, err := pb.NewWorkerServiceClient(conn).ListWorkers(ctx, &pb.ListWorkersRequest{})
	if d := pb.DetailOf(err); status.Code(err) != codes.Unavailable || d.GetReason() != pb.ReasonNotLeader || d.GetLeaderAddr() != c.leader(t).addr {
		t.Errorf("%v, detail %v", err, d)
	}
	stream, err := pb.NewSessionServiceClient(conn).Attach(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); pb.ReasonOf(err) != pb.ReasonNotLeader {
		t.Errorf("stream: %v", err)
	}
}

func TestLostLeadershipEndsAllStreams(t *testing.T) {
	c := startCluster(t, 3)
	leader := c.leader(t)
	conn := leader.dial(t)
	createKeyspace(t, conn, "orders", 8)
	direct := openWorker(t, conn, 11, "w1", "orders")
	forwarded := openWorker(t, c.follower(t).dial(t), 12, "w2", "orders")
	transfer(t, leader)
	for _, w := range []*fakeWorker{direct, forwarded} {
		err := w.end()
		if d := pb.DetailOf(err); status.Code(err) != codes.Unavailable || !d.Retryable() {
			t.Errorf("stream ended with %v, detail %v", err, d)
		}
	}
	next := c.leader(t)
	again := dialWorker(t, next.dial(t), resumeRequest(11, "w1"))
	if !again.next().GetOpened().GetResumed() {
		t.Error("not resumed at the next leader")
	}
}

// A new leader gives the sessions of the earlier one time to come back before
// it lets a second process have their id.
func TestNewLeaderWaitsForTheIncumbent(t *testing.T) {
	c := startCluster(t, 3)
	leader := c.leader(t)
	createKeyspace(t, leader.dial(t), "orders", 8)
	first := openWorker(t, leader.dial(t), 11, "w1", "orders")
	transfer(t, leader)
	_ = first.end()
	next := c.leader(t)
	second := dialWorker(t, next.dial(t), openRequest(12, "w1", "orders"))
	eventually(t, "waiting open", func() bool {
		select {
		case m := <-second.in:
			t.Fatalf("the second worker was answered: %v", m)
		default:
		}
		return next.api.hub.awaited(11, time.Hour) < time.Hour-50*time.Millisecond
	})
	again := dialWorker(t, next.dial(t), resumeRequest(11, "w1"))
	for {
		again.next()
		again.keepAlive(1, 0)
		select {
		case err := <-second.err:
			if pb.ReasonOf(err) != pb.ReasonWorkerIDInUse {
				t.Errorf("%v", err)
			}
			return
		default:
		}
	}
}

// O-68: every call on every server, through a kill of the leader and through a
// transfer: only typed, retryable errors, nothing past the deadline, success
// again within the election bound.
func TestCallsWhileThereIsNoLeader(t *testing.T) {
	for _, way := range []string{"kill", "transfer"} {
		t.Run(way, func(t *testing.T) {
			c := startCluster(t, 3)
			leader := c.leader(t)
			createKeyspace(t, leader.dial(t), "orders", 8)
			ctx, stop := context.WithCancel(t.Context())
			var wg sync.WaitGroup
			var mu sync.Mutex
			var last time.Time // of the last failure
			good := map[string]int{}
			for _, s := range c.servers {
				if way == "kill" && s == leader {
					continue
				}
				for name, call := range allCalls(s.dialWith(t)) {
					wg.Go(func() {
						for paced(ctx) {
							const limit = 5 * time.Second // half of what the servers take by themselves
							callCtx, cancel := context.WithTimeout(ctx, limit)
							begun := time.Now()
							err := call(callCtx)
							cancel()
							if took := time.Since(begun); took > limit+2*time.Second {
								t.Errorf("%s on %s took %v", name, s.id, took)
							}
							if ctx.Err() != nil {
								return
							}
							mu.Lock()
							if err == nil {
								good[s.id+" "+name]++
							} else {
								last = time.Now()
								if why := wrongDuringElection(err, leader); why != "" {
									t.Errorf("%s on %s: %s: %v, detail %v", name, s.id, why, err, pb.DetailOf(err))
								}
							}
							mu.Unlock()
						}
					})
				}
			}
			eventually(t, "first round", func() bool { mu.Lock(); defer mu.Unlock(); return len(good) > 20 })
			begun := time.Now()
			if way == "kill" {
				leader.kill()
			} else {
				transfer(t, leader)
			}
			c.leader(t)
			mu.Lock()
			clear(good)
			mu.Unlock()
			eventually(t, "round after", func() bool { mu.Lock(); defer mu.Unlock(); return len(good) > 20 })
			stop()
			wg.Wait()
			if gap := last.Sub(begun); gap > 10*groupElectionTimeout {
				t.Errorf("the last failure came %v after the %s", gap, way)
			}
		})
	}
}

// paced leaves the servers some of the processor between two calls of one kind:
// else a busy machine elects all the time. It is false once ctx has ended.
func paced(ctx context.Context) bool {
	select {
	case <-time.After(50 * time.Millisecond):
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}

func allCalls(conn *grpc.ClientConn) map[string]func(context.Context) error {
	ks, ps, ws := pb.NewKeyspaceServiceClient(conn), pb.NewPartitionServiceClient(conn), pb.NewWorkerServiceClient(conn)
	es, ss, cs := pb.NewEventServiceClient(conn), pb.NewSessionServiceClient(conn), pb.NewClusterServiceClient(conn)
	return map[string]func(context.Context) error{
		"GetStatus": func(ctx context.Context) error { _, err := cs.GetStatus(ctx, &pb.GetStatusRequest{}); return err },
		"ListPeers": func(ctx context.Context) error { _, err := cs.ListPeers(ctx, &pb.ListPeersRequest{}); return err },
		"UpdateKeyspace": func(ctx context.Context) error {
			_, err := ks.UpdateKeyspace(ctx, &pb.UpdateKeyspaceRequest{Name: "orders", RestartGraceMs: ptr(int64(5000))})
			return err
		},
		"GetKeyspace": func(ctx context.Context) error {
			_, err := ks.GetKeyspace(ctx, &pb.GetKeyspaceRequest{Name: "orders"})
			return err
		},
		"ListKeyspaces": func(ctx context.Context) error {
			_, err := ks.ListKeyspaces(ctx, &pb.ListKeyspacesRequest{})
			return err
		},
		"ListStale": func(ctx context.Context) error {
			_, err := ks.ListKeyspaces(ctx, &pb.ListKeyspacesRequest{Stale: true})
			return err
		},
		"ListPartitions": func(ctx context.Context) error {
			_, err := ps.ListPartitions(ctx, &pb.ListPartitionsRequest{Keyspace: "orders"})
			return err
		},
		"GetPartition": func(ctx context.Context) error {
			_, err := ps.GetPartition(ctx, &pb.GetPartitionRequest{Keyspace: "orders"})
			return err
		},
		"RetryPartition": func(ctx context.Context) error {
			_, err := ps.RetryPartition(ctx, &pb.RetryPartitionRequest{Keyspace: "orders"})
			return only(err, codes.Aborted, codes.FailedPrecondition, codes.NotFound)
		},
		"MovePartition": func(ctx context.Context) error {
			_, err := ps.MovePartition(ctx, &pb.MovePartitionRequest{Keyspace: "orders", To: "nobody"})
			return only(err, codes.NotFound)
		},
		"Locate": func(ctx context.Context) error {
			_, err := ps.Locate(ctx, &pb.LocateRequest{Keyspace: "orders"})
			return err
		},
		"ListWorkers": func(ctx context.Context) error { _, err := ws.ListWorkers(ctx, &pb.ListWorkersRequest{}); return err },
		"DrainWorker": func(ctx context.Context) error {
			_, err := ws.DrainWorker(ctx, &pb.DrainWorkerRequest{Id: "nobody"})
			return only(err, codes.NotFound)
		},
		"ListEvents": func(ctx context.Context) error { _, err := es.ListEvents(ctx, &pb.ListEventsRequest{}); return err },
		"KeepAlive": func(ctx context.Context) error {
			_, err := ss.KeepAlive(ctx, &pb.KeepAliveRequest{SessionId: 77})
			return only(err, codes.NotFound)
		},
		"Attach": func(ctx context.Context) error {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			stream, err := ss.Attach(ctx)
			if err != nil {
				return err
			}
			if err := stream.Send(resumeRequest(77, "nobody")); err != nil && !errors.Is(err, io.EOF) {
				return err
			}
			m, err := stream.Recv()
			if err == nil && m.GetClosed() == nil {
				return fmt.Errorf("answered %v", m)
			}
			return err
		},
	}
}

// only takes the refusals that a call expects for successes: an answer came.
func only(err error, expected ...codes.Code) error {
	for _, c := range expected {
		if status.Code(err) == c {
			return nil
		}
	}
	return err
}

// wrongDuringElection says what is wrong with an error, or "".
func wrongDuringElection(err error, _ *server) string {
	d := pb.DetailOf(err)
	switch status.Code(err) {
	case codes.Unavailable:
		if !d.Retryable() {
			return "not marked as retryable"
		}
		if d.GetReason() == pb.ReasonNoLeader && (d.GetLeaderId() != "" || d.GetLeaderAddr() != "") {
			return "no leader, and yet a hint"
		}
		return ""
	case codes.Unknown:
		if d.GetReason() == pb.ReasonUnknownOutcome {
			return ""
		}
	}
	return "not a typed, retryable error"
}

// What is lost on its way to the leader was not done, or may have been: a
// change says so, a read may be repeated.
func TestForwardErrorsKeepUnknownOutcomesApart(t *testing.T) {
	a := &API{cfg: Config{Store: leaderless{}}}
	gone := status.Error(codes.Unavailable, "error reading from server: EOF")
	if err := a.forwardError(gone, true); pb.ReasonOf(err) != pb.ReasonNoLeader {
		t.Errorf("a read: %v", err)
	}
	if err := a.forwardError(gone, false); pb.ReasonOf(err) != pb.ReasonUnknownOutcome || status.Code(err) != codes.Unknown {
		t.Errorf("a change: %v", err)
	}
}
