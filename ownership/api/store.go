package api

import (
	"context"
	"time"

	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// Store is what the API needs of raftstore.Store, which says what each method
// promises.
type Store interface {
	Propose(ctx context.Context, cmds ...state.Command) ([]state.Result, error)
	ProposeUrgent(ctx context.Context, cmds ...state.Command) ([]state.Result, error)
	View(fn func(*state.State))
	Read(ctx context.Context, fn func(*state.State)) error
	Notify(ch chan<- struct{}) (stop func())
	LeaderID() (id string, ok bool)
	IsLeader() bool
	Term() uint64
}

// Controller is what the API tells and asks the leader's control loop.
// *controller.Controller is one.
type Controller interface {
	// StreamBroken and StreamResumed do not block.
	StreamBroken(id state.SessionID)
	StreamResumed(id state.SessionID)
	// Poke asks for a look at the state now.
	Poke()
}

// Clock is a boot clock: it never goes back.
type Clock interface {
	Now() time.Duration
}
