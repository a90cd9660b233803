package api

import (
	"context"
	"io"

	"connectrpc.com/connect"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	pb "github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
)

// The handlers of the JSON twin: each method names itself and goes through call.

type (
	clusterTwin struct {
		s *cluster
		way
	}
	keyspaceTwin struct {
		s *keyspaces
		way
	}
	partitionTwin struct {
		s *partitions
		way
	}
	workerTwin struct {
		s *workers
		way
	}
	eventTwin struct {
		s *events
		way
	}
	sessionTwin struct {
		s *sessions
		way
	}
	coordinationTwin struct {
		s *coordination
		way
	}
	ringTwin struct {
		s *rings
		way
	}
	credentialTwin struct {
		s *credentials
		way
	}
	gossipTwin struct {
		s *gossips
		way
	}
)

func (t gossipTwin) GetKeyring(ctx context.Context, r *pb.GetKeyringRequest) (*pb.Keyring, error) {
	return call(ctx, t.way, pb.GossipService_GetKeyring_FullMethodName, r, t.s.GetKeyring)
}

func (t gossipTwin) AddGossipKey(ctx context.Context, r *pb.AddGossipKeyRequest) (*pb.Keyring, error) {
	return call(ctx, t.way, pb.GossipService_AddGossipKey_FullMethodName, r, t.s.AddGossipKey)
}

func (t gossipTwin) UseGossipKey(ctx context.Context, r *pb.UseGossipKeyRequest) (*pb.Keyring, error) {
	return call(ctx, t.way, pb.GossipService_UseGossipKey_FullMethodName, r, t.s.UseGossipKey)
}

func (t gossipTwin) RemoveGossipKey(ctx context.Context, r *pb.RemoveGossipKeyRequest) (*pb.Keyring, error) {
	return call(ctx, t.way, pb.GossipService_RemoveGossipKey_FullMethodName, r, t.s.RemoveGossipKey)
}

func (t credentialTwin) CreateCredential(ctx context.Context, r *pb.CreateCredentialRequest) (*pb.CreateCredentialResponse, error) {
	return call(ctx, t.way, pb.CredentialService_CreateCredential_FullMethodName, r, t.s.CreateCredential)
}

func (t credentialTwin) ListCredentials(ctx context.Context, r *pb.ListCredentialsRequest) (*pb.ListCredentialsResponse, error) {
	return call(ctx, t.way, pb.CredentialService_ListCredentials_FullMethodName, r, t.s.ListCredentials)
}

func (t credentialTwin) RevokeCredential(ctx context.Context, r *pb.RevokeCredentialRequest) (*pb.RevokeCredentialResponse, error) {
	return call(ctx, t.way, pb.CredentialService_RevokeCredential_FullMethodName, r, t.s.RevokeCredential)
}

func (t ringTwin) GetRing(ctx context.Context, r *pb.GetRingRequest) (*pb.Ring, error) {
	return call(ctx, t.way, pb.RingService_GetRing_FullMethodName, r, t.s.GetRing)
}

func (t ringTwin) SimulateRing(ctx context.Context, r *pb.SimulateRingRequest) (*pb.Simulation, error) {
	return call(ctx, t.way, pb.RingService_SimulateRing_FullMethodName, r, t.s.SimulateRing)
}

func (t coordinationTwin) Acquire(ctx context.Context, r *pb.AcquireRequest) (*pb.AcquireResponse, error) {
	return call(ctx, t.way, pb.CoordinationService_Acquire_FullMethodName, r, t.s.Acquire)
}

func (t coordinationTwin) CreateSequential(ctx context.Context, r *pb.CreateSequentialRequest) (*pb.CreateSequentialResponse, error) {
	return call(ctx, t.way, pb.CoordinationService_CreateSequential_FullMethodName, r, t.s.CreateSequential)
}

func (t clusterTwin) GetStatus(ctx context.Context, r *pb.GetStatusRequest) (*pb.Status, error) {
	return call(ctx, t.way, pb.ClusterService_GetStatus_FullMethodName, r, t.s.GetStatus)
}

func (t clusterTwin) ListPeers(ctx context.Context, r *pb.ListPeersRequest) (*pb.ListPeersResponse, error) {
	return call(ctx, t.way, pb.ClusterService_ListPeers_FullMethodName, r, t.s.ListPeers)
}

func (t clusterTwin) InitCluster(ctx context.Context, r *pb.InitClusterRequest) (*pb.InitClusterResponse, error) {
	return call(ctx, t.way, pb.ClusterService_InitCluster_FullMethodName, r, t.s.InitCluster)
}

func (t clusterTwin) AddPeer(ctx context.Context, r *pb.AddPeerRequest) (*pb.Peer, error) {
	return call(ctx, t.way, pb.ClusterService_AddPeer_FullMethodName, r, t.s.AddPeer)
}

func (t clusterTwin) PromotePeer(ctx context.Context, r *pb.PromotePeerRequest) (*pb.Peer, error) {
	return call(ctx, t.way, pb.ClusterService_PromotePeer_FullMethodName, r, t.s.PromotePeer)
}

func (t clusterTwin) RemovePeer(ctx context.Context, r *pb.RemovePeerRequest) (*pb.RemovePeerResponse, error) {
	return call(ctx, t.way, pb.ClusterService_RemovePeer_FullMethodName, r, t.s.RemovePeer)
}

func (t clusterTwin) TransferLeadership(ctx context.Context, r *pb.TransferLeadershipRequest) (*pb.TransferLeadershipResponse, error) {
	return call(ctx, t.way, pb.ClusterService_TransferLeadership_FullMethodName, r, t.s.TransferLeadership)
}

func (t clusterTwin) GetHealth(ctx context.Context, r *pb.GetHealthRequest) (*pb.ServerHealth, error) {
	return call(ctx, t.way, pb.ClusterService_GetHealth_FullMethodName, r, t.s.GetHealth)
}

// SaveBackup streams the chunks as one JSON message after another.
func (t clusterTwin) SaveBackup(ctx context.Context, r *pb.SaveBackupRequest, out *connect.ServerStream[pb.SaveBackupResponse]) error {
	const name = pb.ClusterService_SaveBackup_FullMethodName
	return streamTwin(ctx, t.way, name, r, func(ctx context.Context) error { return t.s.saveBackup(ctx, r, out.Send) })
}

// CollectDebug streams the chunks as one JSON message after another.
func (t clusterTwin) CollectDebug(ctx context.Context, r *pb.CollectDebugRequest, out *connect.ServerStream[pb.CollectDebugResponse]) error {
	const name = pb.ClusterService_CollectDebug_FullMethodName
	return streamTwin(ctx, t.way, name, r, func(ctx context.Context) error { return t.s.collectDebug(ctx, r, out.Send) })
}

func (t keyspaceTwin) CreateKeyspace(ctx context.Context, r *pb.CreateKeyspaceRequest) (*pb.Keyspace, error) {
	return call(ctx, t.way, pb.KeyspaceService_CreateKeyspace_FullMethodName, r, t.s.CreateKeyspace)
}

func (t keyspaceTwin) GetKeyspace(ctx context.Context, r *pb.GetKeyspaceRequest) (*pb.Keyspace, error) {
	return call(ctx, t.way, pb.KeyspaceService_GetKeyspace_FullMethodName, r, t.s.GetKeyspace)
}

func (t keyspaceTwin) ListKeyspaces(ctx context.Context, r *pb.ListKeyspacesRequest) (*pb.ListKeyspacesResponse, error) {
	return call(ctx, t.way, pb.KeyspaceService_ListKeyspaces_FullMethodName, r, t.s.ListKeyspaces)
}

func (t keyspaceTwin) UpdateKeyspace(ctx context.Context, r *pb.UpdateKeyspaceRequest) (*pb.Keyspace, error) {
	return call(ctx, t.way, pb.KeyspaceService_UpdateKeyspace_FullMethodName, r, t.s.UpdateKeyspace)
}

func (t keyspaceTwin) DeleteKeyspace(ctx context.Context, r *pb.DeleteKeyspaceRequest) (*pb.DeleteKeyspaceResponse, error) {
	return call(ctx, t.way, pb.KeyspaceService_DeleteKeyspace_FullMethodName, r, t.s.DeleteKeyspace)
}

func (t partitionTwin) ListPartitions(ctx context.Context, r *pb.ListPartitionsRequest) (*pb.ListPartitionsResponse, error) {
	return call(ctx, t.way, pb.PartitionService_ListPartitions_FullMethodName, r, t.s.ListPartitions)
}

func (t partitionTwin) GetPartition(ctx context.Context, r *pb.GetPartitionRequest) (*pb.Partition, error) {
	return call(ctx, t.way, pb.PartitionService_GetPartition_FullMethodName, r, t.s.GetPartition)
}

func (t partitionTwin) MovePartition(ctx context.Context, r *pb.MovePartitionRequest) (*pb.Partition, error) {
	return call(ctx, t.way, pb.PartitionService_MovePartition_FullMethodName, r, t.s.MovePartition)
}

func (t partitionTwin) RetryPartition(ctx context.Context, r *pb.RetryPartitionRequest) (*pb.Partition, error) {
	return call(ctx, t.way, pb.PartitionService_RetryPartition_FullMethodName, r, t.s.RetryPartition)
}

func (t partitionTwin) Locate(ctx context.Context, r *pb.LocateRequest) (*pb.Partition, error) {
	return call(ctx, t.way, pb.PartitionService_Locate_FullMethodName, r, t.s.Locate)
}

func (t partitionTwin) ExplainPartition(ctx context.Context, r *pb.ExplainPartitionRequest) (*pb.Explanation, error) {
	return call(ctx, t.way, pb.PartitionService_ExplainPartition_FullMethodName, r, t.s.ExplainPartition)
}

func (t workerTwin) ListWorkers(ctx context.Context, r *pb.ListWorkersRequest) (*pb.ListWorkersResponse, error) {
	return call(ctx, t.way, pb.WorkerService_ListWorkers_FullMethodName, r, t.s.ListWorkers)
}

func (t workerTwin) DrainWorker(ctx context.Context, r *pb.DrainWorkerRequest) (*pb.Worker, error) {
	return call(ctx, t.way, pb.WorkerService_DrainWorker_FullMethodName, r, t.s.DrainWorker)
}

func (t workerTwin) UndrainWorker(ctx context.Context, r *pb.UndrainWorkerRequest) (*pb.Worker, error) {
	return call(ctx, t.way, pb.WorkerService_UndrainWorker_FullMethodName, r, t.s.UndrainWorker)
}

func (t workerTwin) EvictWorker(ctx context.Context, r *pb.EvictWorkerRequest) (*pb.Worker, error) {
	return call(ctx, t.way, pb.WorkerService_EvictWorker_FullMethodName, r, t.s.EvictWorker)
}

func (t eventTwin) ListEvents(ctx context.Context, r *pb.ListEventsRequest) (*pb.ListEventsResponse, error) {
	return call(ctx, t.way, pb.EventService_ListEvents_FullMethodName, r, t.s.ListEvents)
}

func (t sessionTwin) KeepAlive(ctx context.Context, r *pb.KeepAliveRequest) (*pb.KeepAliveResponse, error) {
	return call(ctx, t.way, pb.SessionService_KeepAlive_FullMethodName, r, t.s.KeepAlive)
}

// WatchEvents streams one JSON message after another.
func (t eventTwin) WatchEvents(ctx context.Context, r *pb.WatchEventsRequest, out *connect.ServerStream[pb.WatchEventsResponse]) error {
	const name = pb.EventService_WatchEvents_FullMethodName
	return streamTwin(ctx, t.way, name, r, func(ctx context.Context) error { return t.s.watch(ctx, r, out.Send) })
}

// streamTwin runs a method that streams answers the way gRPC would: the request is
// received like a message of any stream.
func streamTwin[Req any, PReq message[Req]](ctx context.Context, w way, name string, r PReq, do func(context.Context) error) error {
	ss := &twinStream{ctx: inProcess(ctx, name), request: r}
	info := &grpc.StreamServerInfo{FullMethod: name, IsServerStream: true}
	err := w.guard.Stream(w.api, ss, info, func(srv any, ss grpc.ServerStream) error {
		return w.api.interceptStream(srv, ss, info, func(_ any, ss grpc.ServerStream) error {
			if err := ss.RecvMsg(PReq(new(Req))); err != nil {
				return err
			}
			return do(ss.Context())
		})
	})
	if err != nil {
		return toConnect(err)
	}
	return nil
}

// message is a pointer to a generated message type.
type message[T any] interface {
	*T
	proto.Message
}

// Attach is refused: see unsupported.
func (t sessionTwin) Attach(context.Context, *connect.BidiStream[pb.AttachRequest, pb.AttachResponse]) error {
	return toConnect(unsupported(pb.SessionService_Attach_FullMethodName))
}

// twinStream is what the stream interceptors need of a stream whose answers go
// another way.
type twinStream struct {
	grpc.ServerStream
	ctx     context.Context
	request proto.Message // nil: it has been received
}

func (s *twinStream) Context() context.Context       { return s.ctx }
func (s *twinStream) SetHeader(md metadata.MD) error { return grpc.SetHeader(s.ctx, md) }

func (s *twinStream) RecvMsg(m any) error {
	if s.request == nil {
		return io.EOF
	}
	proto.Merge(m.(proto.Message), s.request)
	s.request = nil
	return nil
}
