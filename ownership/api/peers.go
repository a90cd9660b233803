package api

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/leasehold-dev/leasehold/ownership/auth"
	pb "github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"github.com/leasehold-dev/leasehold/raftstore"
	"github.com/leasehold-dev/leasehold/raftstore/state"
	"github.com/leasehold-dev/leasehold/ring/gossip"
)

const (
	// maxExpect servers form a cluster at most.
	maxExpect = 9
	// askTimeout bounds the question to a server that is to be added.
	askTimeout = 3 * time.Second
	// liveContacts is how many election timeouts ago a voter may have answered
	// last and still be counted on.
	liveContacts = 3
)

// FormationError refuses to form a cluster. Nothing was done.
type FormationError struct {
	Exists bool // there is a cluster already
	Why    string
}

// Error says why.
func (e *FormationError) Error() string { return e.Why }

func (e *FormationError) status() error {
	if e.Exists {
		// There is no other name to choose, as there is for what else exists.
		code, _, _ := rowOf(pb.ReasonExists)
		return pb.StatusError(code, &pb.ErrorDetail{
			Reason:  pb.ReasonExists,
			Message: fmt.Sprintf("no cluster was formed: %s; other servers are let into it with: leasehold raft add ID", e.Why),
		})
	}
	return failf(pb.ReasonConflict, "no cluster was formed: %s", e.Why)
}

// InitCluster forms the cluster here if this server has the lowest id, and
// otherwise sends the call on to the one that has.
func (a *cluster) InitCluster(ctx context.Context, r *pb.InitClusterRequest) (*pb.InitClusterResponse, error) {
	if r.GetExpect() < 1 || r.GetExpect() > maxExpect {
		return nil, invalid("expect", fmt.Sprint(r.GetExpect()), fmt.Sprintf("want the number of servers, 1 to %d", maxExpect))
	}
	if a.cfg.Members == nil {
		return nil, failf(pb.ReasonUnsupported, "server %s cannot form a cluster", a.cfg.ServerID)
	}
	if a.cfg.Store.HasState() {
		return nil, &FormationError{Exists: true, Why: fmt.Sprintf("server %s belongs to cluster %q already", a.cfg.ServerID, a.cfg.Store.ClusterID())}
	}
	peers, ask, err := a.cfg.Members.FormCluster(ctx, int(r.GetExpect()))
	if err != nil {
		return nil, err
	}
	if ask != "" {
		if isForwarded(ctx) {
			return nil, &FormationError{Why: "the servers do not agree on who has the lowest id: they do not see the same servers yet"}
		}
		resp := &pb.InitClusterResponse{}
		return resp, a.passOn(ctx, ask, pb.ClusterService_InitCluster_FullMethodName, r, resp)
	}
	resp := &pb.InitClusterResponse{}
	for _, p := range peers {
		resp.Items = append(resp.Items, a.peerMessage(raftstore.PeerStatus{Peer: p, Voter: true, LastContact: -1}, nil))
	}
	return resp, nil
}

// passOn makes a call at another server, marked so that it is not sent on again.
func (a *API) passOn(ctx context.Context, addr, method string, req, resp proto.Message) error {
	conn, err := a.conns.get(addr)
	if err != nil {
		return err
	}
	out := metadata.NewOutgoingContext(ctx, auth.Forward(ctx))
	var reached peer.Peer
	if err := conn.Invoke(out, method, req, resp, grpc.Peer(&reached)); err != nil {
		return a.forwardError(err, reached.Addr == nil)
	}
	return nil
}

// ListPeers shows the configuration of the group with what gossip, the log and,
// on the leader, replication know of each server.
func (a *cluster) ListPeers(context.Context, *pb.ListPeersRequest) (*pb.ListPeersResponse, error) {
	announced := map[string]state.Server{}
	a.cfg.Store.View(func(s *state.State) {
		for _, srv := range s.Servers() {
			announced[srv.ID] = srv
		}
	})
	resp := &pb.ListPeersResponse{GossipLabel: a.cfg.GossipLabel}
	for _, p := range a.cfg.Store.Status().Peers {
		resp.Items = append(resp.Items, a.peerMessage(p, announced))
	}
	return resp, nil
}

func (a *cluster) peerMessage(p raftstore.PeerStatus, announced map[string]state.Server) *pb.Peer {
	srv := announced[p.ID]
	leader, _ := a.cfg.Store.LeaderID()
	m := &pb.Peer{
		ServerId: p.ID, StoreId: p.Store, RaftAddr: p.RaftAddr, Voter: p.Voter, Leader: p.ID == leader && p.Voter,
		LastContactMs: -1, LastIndex: p.LastIndex,
		GrpcAddr: srv.GRPCAddr, HttpAddr: srv.HTTPAddr, Version: srv.Version, GossipAddr: srv.GossipAddr,
		Gossip: "unknown",
	}
	if p.LastContact >= 0 {
		m.LastContactMs = p.LastContact.Milliseconds()
	}
	if a.cfg.Members != nil {
		m.Note = a.cfg.Members.Note(p.Peer)
	}
	// What gossip shows under the name may be another data directory.
	if g, ok := a.member(gossip.RoleServer, p.ID); ok && (g.Meta.Store == "" || g.Meta.Store == p.Store) {
		m.Gossip, m.GossipAddr, m.MaxFeatureLevel = g.Status.String(), g.Addr, g.Meta.Feature
		m.GrpcAddr = either(g.Meta.GRPCAddr, m.GrpcAddr)
		m.HttpAddr = either(g.Meta.HTTPAddr, m.HttpAddr)
		m.Version = either(g.Meta.Version, m.Version)
	}
	return m
}

// peersNamed are the data directories of a server that are in the group.
func (a *cluster) peersNamed(id, store string) []raftstore.PeerStatus {
	return slices.DeleteFunc(a.cfg.Store.Status().Peers, func(p raftstore.PeerStatus) bool {
		return p.ID != id || store != "" && p.Store != store
	})
}

// AddPeer asks a server who it is and lets it in without a vote. The leader's
// duty promotes it.
func (a *cluster) AddPeer(ctx context.Context, r *pb.AddPeerRequest) (*pb.Peer, error) {
	st, err := a.newcomer(ctx, r)
	if err != nil {
		return nil, err
	}
	p := raftstore.Peer{ID: st.GetServerId(), Store: st.GetStoreId(), RaftAddr: st.GetRaftAddr()}
	if known := a.peersNamed(p.ID, p.Store); len(known) > 0 {
		return a.peerMessage(known[0], nil), nil // a repeated call
	}
	if err := a.admissible(p, st); err != nil {
		return nil, err
	}
	if err := a.cfg.Store.AddPeer(ctx, p); err != nil {
		return nil, err
	}
	a.log.Info("server added by an operator", "server", p.ID, "store", p.Store, "addr", p.RaftAddr)
	return a.peerMessage(raftstore.PeerStatus{Peer: p, LastContact: -1}, nil), nil
}

// newcomer asks the server that is to be added.
func (a *cluster) newcomer(ctx context.Context, r *pb.AddPeerRequest) (*pb.Status, error) {
	id, addr := r.GetServerId(), r.GetGrpcAddr()
	if err := checkName("server_id", id); err != nil {
		return nil, err
	}
	if addr == "" {
		g, ok := a.member(gossip.RoleServer, id)
		if !ok || !g.Up() || g.Meta.GRPCAddr == "" {
			return nil, fail(&pb.ErrorDetail{
				Reason: pb.ReasonNotFound, Field: "server_id", Value: id,
				Message: fmt.Sprintf("server %q: gossip does not show it; start it, or give its address with --grpc-addr", id),
			})
		}
		addr = g.Meta.GRPCAddr
	} else if host, port, err := net.SplitHostPort(addr); err != nil || host == "" || port == "" {
		return nil, invalid("grpc_addr", addr, "want host:port, for example 10.0.0.4:7400 or [fd00::4]:7400")
	}
	conn, err := a.conns.get(addr)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	st, err := pb.NewClusterServiceClient(conn).GetStatus(ctx, &pb.GetStatusRequest{})
	if err != nil {
		return nil, failf(pb.ReasonConflict, "server %s does not answer at %s: %s", id, addr, connectionText(err))
	}
	if st.GetServerId() != id {
		return nil, failf(pb.ReasonConflict, "at %s is server %s, not %s", addr, st.GetServerId(), id)
	}
	return st, nil
}

// connectionText takes gRPC's wrapping off why a connection was not made.
func connectionText(err error) string {
	msg := status.Convert(err).Message()
	if strings.Contains(msg, "error reading server preface") {
		return "it takes the connection and says nothing: a stopped process, or no leasehold server"
	}
	for _, mark := range []string{"desc = ", "transport: ", "Error while dialing: "} {
		if _, after, ok := strings.Cut(msg, mark); ok {
			msg = after
		}
	}
	return strings.Trim(msg, `"`)
}

// admissible refuses what must not get into the group.
func (a *cluster) admissible(p raftstore.Peer, st *pb.Status) error {
	const reset = "to give it up, stop that server, empty its data directory and start it again"
	var level state.Feature
	a.cfg.Store.View(func(s *state.State) { level = s.Feature() })
	switch ours := a.cfg.Store.ClusterID(); {
	case st.GetClusterId() != "" && st.GetClusterId() != ours:
		return fail(&pb.ErrorDetail{
			Reason: pb.ReasonWrongCluster, Field: "server_id", Value: p.ID, Limit: ours,
			Message: fmt.Sprintf("server %s belongs to cluster %q, this is cluster %q: %s", p.ID, st.GetClusterId(), ours, reset),
		})
	case st.GetHasState():
		return failf(pb.ReasonConflict, "server %s has data of a former life in this cluster: %s", p.ID, reset)
	case state.Feature(st.GetMaxFeatureLevel()) < level:
		return failf(pb.ReasonConflict, "server %s (version %s) knows feature level %d, the cluster is at %d: upgrade it first", p.ID, st.GetVersion(), st.GetMaxFeatureLevel(), level)
	case p.Store == "" || p.RaftAddr == "":
		return failf(pb.ReasonConflict, "server %s does not say where it is reached: upgrade it first", p.ID)
	}
	for _, twin := range a.peersNamed(p.ID, "") {
		if a.live(twin) {
			return failf(pb.ReasonConflict, "server %s is in the group with data directory %s and answers at %s: give the new one another id", p.ID, twin.Store, twin.RaftAddr)
		}
	}
	return nil
}

// live tells whether a server has answered the leader lately.
func (a *cluster) live(p raftstore.PeerStatus) bool {
	return p.LastContact >= 0 && p.LastContact <= liveContacts*a.cfg.ElectionTimeout
}

// PromotePeer gives a vote to a server that has caught up.
func (a *cluster) PromotePeer(ctx context.Context, r *pb.PromotePeerRequest) (*pb.Peer, error) {
	known := a.peersNamed(r.GetServerId(), "")
	if len(known) == 0 {
		return nil, notFound("server", "server_id", r.GetServerId())
	}
	at := slices.IndexFunc(known, func(p raftstore.PeerStatus) bool { return !p.Voter })
	if at < 0 {
		return a.peerMessage(known[0], nil), nil
	}
	p := known[at]
	if err := a.cfg.Store.PromotePeer(ctx, p.Peer); err != nil {
		return nil, err
	}
	a.log.Info("server promoted by an operator", "server", p.ID, "store", p.Store)
	p.Voter = true
	return a.peerMessage(p, nil), nil
}

// RemovePeer takes a server out of the group. This server hands the leadership
// over first when it is the one, and the next leader does it.
func (a *cluster) RemovePeer(ctx context.Context, r *pb.RemovePeerRequest) (*pb.RemovePeerResponse, error) {
	gone := a.peersNamed(r.GetServerId(), r.GetStoreId())
	switch {
	case len(gone) == 0 && r.GetStoreId() != "" && len(a.peersNamed(r.GetServerId(), "")) > 0:
		return nil, notFound("data directory of server "+r.GetServerId(), "store_id", r.GetStoreId())
	case len(gone) == 0:
		return nil, notFound("server", "server_id", r.GetServerId())
	}
	if err := a.removable(gone, r.GetForce()); err != nil {
		return nil, err
	}
	resp := &pb.RemovePeerResponse{}
	self := a.cfg.Store.Self()
	if slices.ContainsFunc(gone, func(p raftstore.PeerStatus) bool { return p.ID == self.ID && p.Store == self.Store }) {
		return resp, a.handOver(ctx, pb.ClusterService_RemovePeer_FullMethodName, r, resp)
	}
	for _, p := range gone {
		if err := a.remove(ctx, p.Peer, r.GetForce()); err != nil {
			return nil, err
		}
		a.log.Info("server removed by an operator", "server", p.ID, "store", p.Store, "force", r.GetForce())
	}
	return resp, nil
}

func (a *cluster) remove(ctx context.Context, p raftstore.Peer, force bool) error {
	if force {
		return a.cfg.Store.ForceRemovePeer(ctx, p)
	}
	return a.cfg.Store.RemovePeer(ctx, p)
}

// removable refuses to leave a group that cannot decide anything.
func (a *cluster) removable(gone []raftstore.PeerStatus, force bool) error {
	voters, live, votes := 0, 0, 0
	for _, p := range a.cfg.Store.Status().Peers {
		if !p.Voter {
			continue
		}
		if slices.ContainsFunc(gone, func(g raftstore.PeerStatus) bool { return g.ID == p.ID && g.Store == p.Store }) {
			votes++
			continue
		}
		voters++
		if a.live(p) {
			live++
		}
	}
	switch {
	case votes == 0:
		return nil
	case voters == 0:
		return failf(pb.ReasonConflict, "server %s is the only voter: add another server first", gone[0].ID)
	case live <= voters/2 && !force:
		return failf(pb.ReasonConflict, "without server %s only %d of %d voters answer, which is no majority: bring the others back first; --force removes it all the same, and then nothing works until they are", gone[0].ID, live, voters)
	}
	return nil
}

// handOver gives the leadership to another server and makes the call there.
func (a *cluster) handOver(ctx context.Context, method string, req, resp proto.Message) error {
	if err := a.transfer(ctx); err != nil {
		return err
	}
	for {
		if id, addr, ok := a.leader(); ok && id != a.cfg.ServerID {
			err := a.passOn(ctx, addr, method, req, resp)
			if err == nil || !pb.DetailOf(err).Retryable() {
				return err
			}
		}
		if err := a.pause(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
}

// transfer hands the leadership on. What Raft says when it cannot is no bug: the
// other server was too slow, or another transfer is under way.
func (a *cluster) transfer(ctx context.Context, to ...raftstore.Peer) error {
	err := a.cfg.Store.TransferLeadership(ctx, to...)
	var notLeader *raftstore.NotLeaderError
	var peer *raftstore.PeerError
	if err == nil || ctx.Err() != nil || errors.As(err, &notLeader) || errors.As(err, &peer) || errors.Is(err, raftstore.ErrStopped) {
		return err
	}
	return failf(pb.ReasonConflict, "%v", err)
}

// TransferLeadership hands the leadership on and says to whom.
func (a *cluster) TransferLeadership(ctx context.Context, r *pb.TransferLeadershipRequest) (*pb.TransferLeadershipResponse, error) {
	var to []raftstore.Peer
	if id := r.GetServerId(); id != "" {
		known := a.peersNamed(id, "")
		at := slices.IndexFunc(known, func(p raftstore.PeerStatus) bool { return p.Voter })
		switch {
		case len(known) == 0:
			return nil, notFound("server", "server_id", id)
		case at < 0:
			return nil, failf(pb.ReasonConflict, "server %s has no vote yet: wait until it is promoted", id)
		case id == a.cfg.ServerID:
			return &pb.TransferLeadershipResponse{LeaderId: id}, nil
		case !a.live(known[at]):
			return nil, failf(pb.ReasonConflict, "server %s does not answer", id)
		}
		to = append(to, known[at].Peer)
	} else if !slices.ContainsFunc(a.cfg.Store.Status().Peers, func(p raftstore.PeerStatus) bool { return p.Voter && p.ID != a.cfg.ServerID }) {
		return nil, failf(pb.ReasonConflict, "server %s is the only voter", a.cfg.ServerID)
	}
	if err := a.transfer(ctx, to...); err != nil {
		return nil, err
	}
	for {
		if id, ok := a.cfg.Store.LeaderID(); ok && id != a.cfg.ServerID {
			a.log.Info("leadership handed on by an operator", "to", id)
			return &pb.TransferLeadershipResponse{LeaderId: id}, nil
		}
		if err := a.pause(ctx, 10*time.Millisecond); err != nil {
			return nil, err
		}
	}
}
