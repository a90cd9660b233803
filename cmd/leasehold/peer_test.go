package main

import (
	"context"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"github.com/leasehold-dev/leasehold/raftstore/access"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// peer is the other end of the protocol: it answers from a script and keeps
// what it was asked.
type peer struct {
	leaseholdv1.UnimplementedClusterServiceServer
	leaseholdv1.UnimplementedKeyspaceServiceServer
	leaseholdv1.UnimplementedPartitionServiceServer
	leaseholdv1.UnimplementedWorkerServiceServer
	leaseholdv1.UnimplementedEventServiceServer
	leaseholdv1.UnimplementedRingServiceServer
	leaseholdv1.UnimplementedCredentialServiceServer

	addr string

	mu     sync.Mutex
	asked  []proto.Message
	refuse error // what every call but GetStatus ends with
	status []*leaseholdv1.Status
	held   []int64 // of w2, one per ListWorkers, then the last
	pages  uint32  // partitions per page
	backup func(grpc.ServerStreamingServer[leaseholdv1.SaveBackupResponse]) error
	watch  func(*leaseholdv1.WatchEventsRequest, grpc.ServerStreamingServer[leaseholdv1.WatchEventsResponse]) error
}

func newPeer(t testing.TB, opts ...grpc.ServerOption) *peer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &peer{addr: l.Addr().String(), pages: 100, held: []int64{3}}
	p.status = []*leaseholdv1.Status{{
		ClusterId: "c0ffee", ServerId: "s1", Version: "v0.1.0", LeaderId: "s1", LeaderGrpcAddr: "10.0.0.1:7400", Term: 7,
		AppliedIndex: 120, CommitIndex: 121, Revision: 64, LastToken: 49387577294863, Ready: true, RaftState: "leader", Sessions: 2, Workers: 2,
		Keyspaces: []*leaseholdv1.KeyspaceStatus{{Name: "orders", Partitions: 4, Owned: 2, Draining: 1, Unowned: 2, Quarantined: 1}},
	}}
	srv := grpc.NewServer(opts...)
	leaseholdv1.RegisterClusterServiceServer(srv, p)
	leaseholdv1.RegisterKeyspaceServiceServer(srv, p)
	leaseholdv1.RegisterPartitionServiceServer(srv, p)
	leaseholdv1.RegisterWorkerServiceServer(srv, p)
	leaseholdv1.RegisterEventServiceServer(srv, p)
	leaseholdv1.RegisterRingServiceServer(srv, p)
	leaseholdv1.RegisterCredentialServiceServer(srv, p)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = srv.Serve(l)
	}()
	t.Cleanup(func() {
		srv.Stop()
		<-done
	})
	return p
}

// cli is a command line that talks to this server.
func (p *peer) cli() *cli { return &cli{env: map[string]string{"LEASEHOLD_SERVER": p.addr}} }

func (p *peer) ask(m proto.Message) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked = append(p.asked, m)
	return p.refuse
}

// last is the last request but those for status.
func (p *peer) last() proto.Message {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.asked) == 0 {
		return nil
	}
	return p.asked[len(p.asked)-1]
}

func (p *peer) GetStatus(context.Context, *leaseholdv1.GetStatusRequest) (*leaseholdv1.Status, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.status[0]
	if len(p.status) > 1 {
		p.status = p.status[1:]
	}
	return s, nil
}

func (p *peer) ListPeers(_ context.Context, r *leaseholdv1.ListPeersRequest) (*leaseholdv1.ListPeersResponse, error) {
	return &leaseholdv1.ListPeersResponse{Items: []*leaseholdv1.Peer{
		{ServerId: "s1", RaftAddr: "10.0.0.1:7401", GrpcAddr: "10.0.0.1:7400", HttpAddr: "10.0.0.1:7480", GossipAddr: "10.0.0.1:7402", Voter: true, Leader: true, Gossip: "alive", Version: "v0.1.0",
			StoreId: "0a1b2c3d4e5f", LastIndex: 121, MaxFeatureLevel: 1},
		{ServerId: "s2", RaftAddr: "[fd00::2]:7401", GrpcAddr: "[fd00::2]:7400", Voter: true, Gossip: "dead", StoreId: "66778899aabb", LastContactMs: -1},
		{ServerId: "s4", RaftAddr: "10.0.0.4:7401", GrpcAddr: "10.0.0.4:7400", Gossip: "alive", StoreId: "ccddeeff0011", LastContactMs: 40, LastIndex: 118, Note: "catching up, 3 entries behind"},
	}}, p.ask(r)
}

func (p *peer) InitCluster(_ context.Context, r *leaseholdv1.InitClusterRequest) (*leaseholdv1.InitClusterResponse, error) {
	return &leaseholdv1.InitClusterResponse{Items: []*leaseholdv1.Peer{{ServerId: "s1", Voter: true}, {ServerId: "s2", Voter: true}}}, p.ask(r)
}

func (p *peer) AddPeer(_ context.Context, r *leaseholdv1.AddPeerRequest) (*leaseholdv1.Peer, error) {
	return &leaseholdv1.Peer{ServerId: r.GetServerId(), RaftAddr: "10.0.0.4:7401", StoreId: "ccddeeff0011"}, p.ask(r)
}

func (p *peer) PromotePeer(_ context.Context, r *leaseholdv1.PromotePeerRequest) (*leaseholdv1.Peer, error) {
	return &leaseholdv1.Peer{ServerId: r.GetServerId(), Voter: true}, p.ask(r)
}

func (p *peer) RemovePeer(_ context.Context, r *leaseholdv1.RemovePeerRequest) (*leaseholdv1.RemovePeerResponse, error) {
	return &leaseholdv1.RemovePeerResponse{}, p.ask(r)
}

func (p *peer) TransferLeadership(_ context.Context, r *leaseholdv1.TransferLeadershipRequest) (*leaseholdv1.TransferLeadershipResponse, error) {
	id := r.GetServerId()
	if id == "" {
		id = "s2"
	}
	return &leaseholdv1.TransferLeadershipResponse{LeaderId: id}, p.ask(r)
}

func ci() *leaseholdv1.Credential {
	return &leaseholdv1.Credential{
		Id: "abc123abc123", Name: "ci", Role: leaseholdv1.Role_ROLE_WORKER, Keyspaces: []string{"orders", "pay-*"}, KeyPrefixes: []string{"/app/"},
		Created: timestamppb.New(time.Unix(1_700_000_000, 0)), Expires: timestamppb.New(time.Unix(4_000_000_000, 0)), CreatedBy: "operator/root (certificate 1f)",
	}
}

func (p *peer) CreateCredential(_ context.Context, r *leaseholdv1.CreateCredentialRequest) (*leaseholdv1.CreateCredentialResponse, error) {
	return &leaseholdv1.CreateCredentialResponse{Credential: ci(), Token: access.Token("abc123abc123", make([]byte, access.SecretLen))}, p.ask(r)
}

func (p *peer) ListCredentials(_ context.Context, r *leaseholdv1.ListCredentialsRequest) (*leaseholdv1.ListCredentialsResponse, error) {
	return &leaseholdv1.ListCredentialsResponse{Items: []*leaseholdv1.Credential{ci(), {
		Id: "zzz999zzz999", Name: "on-call", Role: leaseholdv1.Role_ROLE_OPERATOR, Keyspaces: []string{"*"}, KeyPrefixes: []string{""},
		Created: timestamppb.New(time.Unix(1_600_000_000, 0)), Expires: timestamppb.New(time.Unix(1_600_043_200, 0)), CreatedBy: "anybody",
	}, {
		Id: "aaa000aaa000", Name: "shop", Role: leaseholdv1.Role_ROLE_READER, Keyspaces: []string{"shop"},
		Created: timestamppb.New(time.Unix(1_600_000_000, 0)), CreatedBy: "anybody",
	}}}, p.ask(r)
}

func (p *peer) RevokeCredential(_ context.Context, r *leaseholdv1.RevokeCredentialRequest) (*leaseholdv1.RevokeCredentialResponse, error) {
	return &leaseholdv1.RevokeCredentialResponse{Credential: ci(), Sessions: 2}, p.ask(r)
}

func orders() *leaseholdv1.Keyspace {
	return &leaseholdv1.Keyspace{Id: 1, Name: "orders", Partitions: 4, TtlMs: 10_000, Takeover: leaseholdv1.Takeover_TAKEOVER_STRICT, HandoffTimeoutMs: 30_000,
		InitialDelayMs: 1500, Status: &leaseholdv1.KeyspaceStatus{Name: "orders", Partitions: 4, Owned: 2, Draining: 1, Unowned: 2, Quarantined: 1}}
}

func (p *peer) CreateKeyspace(_ context.Context, r *leaseholdv1.CreateKeyspaceRequest) (*leaseholdv1.Keyspace, error) {
	return &leaseholdv1.Keyspace{Id: 2, Name: r.GetName(), Partitions: r.GetPartitions(), TtlMs: r.GetTtlMs(), Takeover: r.GetTakeover()}, p.ask(r)
}

func (p *peer) GetKeyspace(_ context.Context, r *leaseholdv1.GetKeyspaceRequest) (*leaseholdv1.Keyspace, error) {
	return orders(), p.ask(r)
}

func (p *peer) ListKeyspaces(_ context.Context, r *leaseholdv1.ListKeyspacesRequest) (*leaseholdv1.ListKeyspacesResponse, error) {
	return &leaseholdv1.ListKeyspacesResponse{Items: []*leaseholdv1.Keyspace{orders(),
		{Id: 2, Name: "mails", Partitions: 1024, TtlMs: 90_000, Takeover: leaseholdv1.Takeover_TAKEOVER_FENCED, Deleting: true}}}, p.ask(r)
}

func (p *peer) UpdateKeyspace(_ context.Context, r *leaseholdv1.UpdateKeyspaceRequest) (*leaseholdv1.Keyspace, error) {
	return orders(), p.ask(r)
}

func (p *peer) DeleteKeyspace(_ context.Context, r *leaseholdv1.DeleteKeyspaceRequest) (*leaseholdv1.DeleteKeyspaceResponse, error) {
	return &leaseholdv1.DeleteKeyspaceResponse{}, p.ask(r)
}

func partitions() []*leaseholdv1.Partition {
	return []*leaseholdv1.Partition{
		{Keyspace: "orders", Partition: 0, State: leaseholdv1.PartitionState_PARTITION_STATE_OWNED, Owner: "w2", Endpoint: "10.0.1.2:9000", Token: 49387577294860,
			SessionId: 0x551c9191b84edb37, RangeFirst: "0000000000000000", RangeLast: "3fffffffffffffff", HeldMs: 7_200_123, Cause: "initial"},
		{Keyspace: "orders", Partition: 1, State: leaseholdv1.PartitionState_PARTITION_STATE_DRAINING, Owner: "w2", Target: "w4", Token: 49387577294861,
			SessionId: 0x551c9191b84edb37, RangeFirst: "4000000000000000", RangeLast: "7fffffffffffffff", HeldMs: 4_250, Cause: "operator"},
		{Keyspace: "orders", Partition: 2, State: leaseholdv1.PartitionState_PARTITION_STATE_UNOWNED, Token: 49387577294862,
			RangeFirst: "8000000000000000", RangeLast: "bfffffffffffffff", Cause: "expired", Reason: "no worker has room"},
		{Keyspace: "orders", Partition: 3, State: leaseholdv1.PartitionState_PARTITION_STATE_QUARANTINED,
			RangeFirst: "c000000000000000", RangeLast: "ffffffffffffffff", Failures: 3, Reason: "failed on 3 workers"},
	}
}

func (p *peer) ListPartitions(_ context.Context, r *leaseholdv1.ListPartitionsRequest) (*leaseholdv1.ListPartitionsResponse, error) {
	p.mu.Lock()
	n := p.pages
	p.mu.Unlock()
	all := partitions()[r.GetFirst():]
	out := &leaseholdv1.ListPartitionsResponse{Items: all}
	if uint32(len(all)) > n {
		out.Items, out.Next = all[:n], r.GetFirst()+n
	}
	return out, p.ask(proto.Clone(r))
}

func (p *peer) GetPartition(_ context.Context, r *leaseholdv1.GetPartitionRequest) (*leaseholdv1.Partition, error) {
	return partitions()[1], p.ask(r)
}

func (p *peer) MovePartition(_ context.Context, r *leaseholdv1.MovePartitionRequest) (*leaseholdv1.Partition, error) {
	return partitions()[1], p.ask(r)
}

func (p *peer) RetryPartition(_ context.Context, r *leaseholdv1.RetryPartitionRequest) (*leaseholdv1.Partition, error) {
	return partitions()[2], p.ask(r)
}

func (p *peer) Locate(_ context.Context, r *leaseholdv1.LocateRequest) (*leaseholdv1.Partition, error) {
	return partitions()[0], p.ask(r)
}

func (p *peer) ListWorkers(_ context.Context, r *leaseholdv1.ListWorkersRequest) (*leaseholdv1.ListWorkersResponse, error) {
	p.mu.Lock()
	held := p.held[0]
	if len(p.held) > 1 {
		p.held = p.held[1:]
	}
	p.mu.Unlock()
	return &leaseholdv1.ListWorkersResponse{Items: []*leaseholdv1.Worker{
		{Id: "w2", SessionId: 0x551c9191b84edb37, Incarnation: 12, Endpoint: "10.0.1.2:9000", Zone: "a", Capacity: 10, Keyspaces: []string{"orders", "mails"}, TtlMs: 10_000,
			RemainingMs: 8_760, State: "live", Held: held, Running: 2, Gossip: "alive", Attached: true, Addr: "10.0.1.2:51034"},
		{Id: "w4\x1b[2J", State: "gone", Draining: true, Gossip: "dead"},
	}}, p.ask(r)
}

func (p *peer) DrainWorker(_ context.Context, r *leaseholdv1.DrainWorkerRequest) (*leaseholdv1.Worker, error) {
	return &leaseholdv1.Worker{Id: r.GetId(), Held: 3, Draining: true}, p.ask(r)
}

func (p *peer) UndrainWorker(_ context.Context, r *leaseholdv1.UndrainWorkerRequest) (*leaseholdv1.Worker, error) {
	return &leaseholdv1.Worker{Id: r.GetId()}, p.ask(r)
}

func (p *peer) EvictWorker(_ context.Context, r *leaseholdv1.EvictWorkerRequest) (*leaseholdv1.Worker, error) {
	return &leaseholdv1.Worker{Id: r.GetId(), Held: 3, State: "evicted"}, p.ask(r)
}

func event(revision uint64, kind, keyspace string, partition uint32, cause string) *leaseholdv1.Event {
	ev := &leaseholdv1.Event{Revision: revision, Index: 100 + revision, Time: timestamppb.New(time.Date(2026, 3, 1, 12, 0, int(revision), 0, time.UTC)),
		Kind: kind, Keyspace: keyspace, Worker: "w4", Token: 49387577294860 + revision, Cause: cause}
	if keyspace != "" {
		ev.Partition = proto.Uint32(partition)
	}
	if kind == "grant" {
		ev.From = "w2"
	}
	return ev
}

func (p *peer) ListEvents(_ context.Context, r *leaseholdv1.ListEventsRequest) (*leaseholdv1.ListEventsResponse, error) {
	session := &leaseholdv1.Event{Revision: 1, Index: 101, Time: timestamppb.New(time.Date(2026, 3, 1, 12, 0, 1, 0, time.UTC)), Kind: "session_open", Worker: "w4"}
	return &leaseholdv1.ListEventsResponse{Items: []*leaseholdv1.Event{session, event(2, "expire", "orders", 17, "expired"), event(3, "grant", "orders", 17, "expired")}, Revision: 3}, p.ask(r)
}

func (p *peer) WatchEvents(r *leaseholdv1.WatchEventsRequest, s grpc.ServerStreamingServer[leaseholdv1.WatchEventsResponse]) error {
	if err := p.ask(r); err != nil {
		return err
	}
	return p.watch(r, s)
}

func (p *peer) refuseWith(code codes.Code, d *leaseholdv1.ErrorDetail) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse = leaseholdv1.StatusError(code, d)
}

// requests of one type, in order.
func requests[M proto.Message](p *peer) (out []M) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, m := range slices.Clone(p.asked) {
		if m, ok := m.(M); ok {
			out = append(out, m)
		}
	}
	return out
}

func (p *peer) SaveBackup(_ *leaseholdv1.SaveBackupRequest, out grpc.ServerStreamingServer[leaseholdv1.SaveBackupResponse]) error {
	return p.backup(out)
}
