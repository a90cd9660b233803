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
}

// Controller is what the API tells and asks the leader's control loop.
// *controller.Controller is one.
type Controller interface {
	StreamBroken(id state.SessionID)
	StreamAttached(id state.SessionID)
	MoveTo(ctx context.Context, ks state.KeyspaceID, partition uint32, worker string) error
	Why(ks state.KeyspaceID, partition uint32) (controller.Reason, error)
}

// Gossip is what the API shows of the member table. *gossip.Gossip is one.
type Gossip interface {
	Member(name string) (gossip.Member, bool)
}

// Clock is a boot clock: it never goes back.
type Clock interface {
	Now() time.Duration
}
