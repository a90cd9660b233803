package api

import (
	"context"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/controller"
	"github.com/leasehold-dev/leasehold/raftstore"
	"github.com/leasehold-dev/leasehold/raftstore/state"
	"github.com/leasehold-dev/leasehold/ring/gossip"
)

// Store is what the API needs of raftstore.Store, which says what each method
// promises.
type Store interface {
	Propose(ctx context.Context, cmds ...state.Command) ([]state.Result, error)
	ProposeUrgent(ctx context.Context, cmds ...state.Command) ([]state.Result, error)
	KeepAlive(ctx context.Context, id state.SessionID) (raftstore.KeepAlive, error)
	KeepAliveAsync(id state.SessionID, fn func(raftstore.KeepAlive, error))
	View(fn func(*state.State))
	Read(ctx context.Context, fn func(*state.State)) error
	Notify(ch chan<- struct{}) (stop func())
	LeaderID() (id string, ok bool)
	IsLeader() bool
	Status() raftstore.Status
	LastContact() time.Duration
	HasState() bool
	Self() raftstore.Peer
	ClusterID() string
	AddPeer(ctx context.Context, p raftstore.Peer) error
	PromotePeer(ctx context.Context, p raftstore.Peer) error
	RemovePeer(ctx context.Context, p raftstore.Peer) error
	ForceRemovePeer(ctx context.Context, p raftstore.Peer) error
	TransferLeadership(ctx context.Context, to ...raftstore.Peer) error
}

// Members is what the API asks its server about the servers of the group.
type Members interface {
	// FormCluster forms a cluster of expect servers, or names the gRPC address of
	// the server that must be asked instead. A *FormationError refuses.
	FormCluster(ctx context.Context, expect int) (peers []raftstore.Peer, ask string, err error)
	// Note says what is being done with a server of the group, or "".
	Note(p raftstore.Peer) string
	// NotReady says what keeps this server from serving that its store does not
	// show, or "".
	NotReady() string
}

// Controller is what the API tells and asks the leader's control loop.
// *controller.Controller is one.
type Controller interface {
	StreamBroken(id state.SessionID)
	StreamAttached(id state.SessionID)
	MoveTo(ctx context.Context, ks state.KeyspaceID, partition uint32, worker string) error
	Why(ks state.KeyspaceID, partition uint32, l state.Lease) (controller.Reason, error)
	Planned(ks state.KeyspaceID) (*controller.Planned, error)
	Blocked(ks state.KeyspaceID) func(partition uint32, l state.Lease) bool
}

// Gossip is what the API shows of the member table. *gossip.Gossip is one.
type Gossip interface {
	Member(name string) (gossip.Member, bool)
	Members() []gossip.Member
	// Keys are those that are installed, and their version.
	Keys() (version uint64, keys [][]byte)
}

// Clock is a boot clock: it never goes back.
type Clock interface {
	Now() time.Duration
}
