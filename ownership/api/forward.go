package api

import (
	"context"
	"errors"
	"fmt"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/leasehold-dev/leasehold/ownership/auth"
	pb "github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
)

// ageKey is the header of an answer from this server's own state: how long ago it
// last heard from a leader, in ms.
const ageKey = "leasehold-age-ms"

// method is what forwarding must know of one rpc.
type method struct {
	in, out protoreflect.MessageType
	local   bool // answered from this server's own state, always
	reads   bool // may be repeated whatever became of the first try
	waits   bool // may last for as long as its caller likes
	// For the metrics: what the call is about, and read or write.
	call, kind string
	// access is the rule of the rpc; nil: it has none, and nobody may call it.
	access *pb.Access
}

// localMethods are answered by whichever server is asked.
func localMethods() map[string]bool {
	return map[string]bool{
		pb.ClusterService_GetStatus_FullMethodName:    true,
		pb.ClusterService_ListPeers_FullMethodName:    true,
		pb.EventService_WatchEvents_FullMethodName:    true,
		pb.ClusterService_InitCluster_FullMethodName:  true,
		pb.ClusterService_GetHealth_FullMethodName:    true,
		pb.ClusterService_CollectDebug_FullMethodName: true,
	}
}

// readMethods change nothing, or only what a repetition does not change again.
func readMethods() map[string]bool {
	return map[string]bool{
		pb.KeyspaceService_GetKeyspace_FullMethodName:       true,
		pb.KeyspaceService_ListKeyspaces_FullMethodName:     true,
		pb.PartitionService_ListPartitions_FullMethodName:   true,
		pb.PartitionService_GetPartition_FullMethodName:     true,
		pb.PartitionService_Locate_FullMethodName:           true,
		pb.PartitionService_ExplainPartition_FullMethodName: true,
		pb.GossipService_GetKeyring_FullMethodName:          true,
		pb.RingService_GetRing_FullMethodName:               true,
		pb.RingService_SimulateRing_FullMethodName:          true,
		pb.WorkerService_ListWorkers_FullMethodName:         true,
		pb.EventService_ListEvents_FullMethodName:           true,
		pb.CredentialService_ListCredentials_FullMethodName: true,
		pb.SessionService_KeepAlive_FullMethodName:          true,
		pb.SessionService_Attach_FullMethodName:             true,
		pb.ClusterService_SaveBackup_FullMethodName:         true,
		pb.CoordinationService_Acquire_FullMethodName:       true,
	}
}

// waitMethods have no time of their own.
func waitMethods() map[string]bool {
	return map[string]bool{pb.CoordinationService_Acquire_FullMethodName: true}
}

// methodTable reads every rpc of leasehold.v1 from its descriptor, so that a
// new one is forwarded without a line here.
func methodTable() (map[string]method, error) {
	table := map[string]method{}
	local, reads, waits := localMethods(), readMethods(), waitMethods()
	services := pb.File_ownership_leaseholdv1_leasehold_proto.Services()
	for i := range services.Len() {
		methods := services.Get(i).Methods()
		for j := range methods.Len() {
			d := methods.Get(j)
			in, err := protoregistry.GlobalTypes.FindMessageByName(d.Input().FullName())
			if err != nil {
				return nil, fmt.Errorf("find message %s: %w", d.Input().FullName(), err)
			}
			out, err := protoregistry.GlobalTypes.FindMessageByName(d.Output().FullName())
			if err != nil {
				return nil, fmt.Errorf("find message %s: %w", d.Output().FullName(), err)
			}
			name := fmt.Sprintf("/%s/%s", services.Get(i).FullName(), d.Name())
			m := method{in: in, out: out, local: local[name], reads: reads[name], waits: waits[name], access: accessOf(d)}
			m.call, m.kind = callOf(string(services.Get(i).Name()), string(d.Name())), "write"
			if m.local || m.reads && name != pb.SessionService_KeepAlive_FullMethodName {
				m.kind = "read"
			}
			table[name] = m
		}
	}
	return table, nil
}

// wantsStale tells whether a request asks for this server's own state.
func wantsStale(req any) bool {
	r, ok := req.(interface{ GetStale() bool })
	return ok && r.GetStale()
}

func isForwarded(ctx context.Context) bool {
	md, ok := metadata.FromIncomingContext(ctx)
	return ok && len(md.Get(auth.ForwardedKey)) > 0
}

// route finds the connection to the leader for a call that this server cannot
// do itself, or the error that says why there is none.
func (a *API) route(ctx context.Context) (*grpc.ClientConn, context.Context, error) {
	if isForwarded(ctx) {
		return nil, nil, a.notLeader() // the forwarder's view was old: no loop
	}
	id, addr, ok := a.leader()
	if !ok {
		return nil, nil, a.nobodyLeads()
	}
	if id == a.cfg.ServerID {
		return nil, nil, noLeader("this server is just becoming the leader")
	}
	conn, err := a.conns.get(addr)
	if err != nil {
		return nil, nil, noLeader(fmt.Sprintf("leader %s cannot be dialled at %s: %v", id, addr, err))
	}
	return conn, metadata.NewOutgoingContext(ctx, auth.Forward(ctx)), nil
}

// forwardUnary sends one call on to the leader.
func (a *API) forwardUnary(ctx context.Context, name string, m method, req any) (any, error) {
	conn, out, err := a.route(ctx)
	if err != nil {
		return nil, err
	}
	resp := m.out.New().Interface()
	var reached peer.Peer
	if err := conn.Invoke(out, name, req, resp, grpc.Peer(&reached)); err != nil {
		return nil, a.forwardError(err, m.reads || reached.Addr == nil)
	}
	return resp, nil
}

// forwardError passes the leader's own errors on. One that grpc made means
// that the leader is gone: harmless for what never left this server and for
// reads, unknown otherwise.
func (a *API) forwardError(err error, harmless bool) error {
	if pb.DetailOf(err) != nil {
		return err
	}
	if status.Code(err) == codes.Unavailable {
		if harmless {
			return noLeader("the leader gave no answer: " + status.Convert(err).Message())
		}
		return failf(pb.ReasonUnknownOutcome, "the leader was lost during the call: %s", status.Convert(err).Message())
	}
	return a.toStatus(err)
}

// forwardStream joins a caller's stream to one at the leader until either ends.
func (a *API) forwardStream(down grpc.ServerStream, name string, m method) error {
	conn, out, err := a.route(down.Context())
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(out)
	defer cancel(nil)
	desc := &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}
	up, err := conn.NewStream(ctx, desc, name)
	if err != nil {
		return a.forwardError(err, true)
	}
	// The handler's own goroutine carries answers, so that returning from it
	// ends the caller's stream, which ends this one.
	started := a.routines.start(func() {
		err := pump(down.RecvMsg, up.SendMsg, m.in)
		if err != nil {
			cancel(err)
			return
		}
		_ = up.CloseSend() // an error shows on the way back
	})
	if !started {
		return errShuttingDown()
	}
	if err := pump(up.RecvMsg, down.SendMsg, m.out); err != nil {
		if cause := context.Cause(ctx); pb.DetailOf(cause) != nil {
			return cause // what the caller sent was refused here
		}
		return a.forwardError(err, true)
	}
	return nil
}

// pump copies messages until the source ends; nil means that it ended well.
func pump(recv, send func(any) error, t protoreflect.MessageType) error {
	for {
		var msg proto.Message = t.New().Interface()
		if err := recv(msg); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if err := send(msg); err != nil && !errors.Is(err, io.EOF) {
			return err
		} else if err != nil {
			return nil // the reader of the answers learns why
		}
	}
}
