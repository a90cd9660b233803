package etcdapi

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/leasehold-dev/leasehold/raftstore"
	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// errNotDone says that a call has changed nothing and may be tried again, here
// or elsewhere: nobody led where it was sent.
var errNotDone = errors.New("nobody leads there")

// lookAgain bounds how long a call waits for news of a leader before it tries
// again all the same: a leader that is being replaced refuses without any news.
const lookAgain = 25 * time.Millisecond

// atLeader does a call here when this server leads, else at the leader, and
// waits for one as long as ctx does. What may have been done is not tried
// again. The error is a status.
func (a *API) atLeader(ctx context.Context, m method, req, resp proto.Message) error {
	c := a.callOf(m)
	if c == nil {
		return status.Errorf(codes.Internal, "etcdserver: no call %d", m)
	}
	for {
		changed := a.relay.changes()
		err := a.tryLeader(ctx, c, m, req, resp)
		again := errors.Is(err, errNotDone) || c.reads && errors.Is(err, errRelayBroke)
		if err == nil || !again {
			return toStatus(err)
		}
		if err := a.awaitLeader(ctx, changed); err != nil {
			return toStatus(err)
		}
	}
}

func (a *API) tryLeader(ctx context.Context, c *call, m method, req, resp proto.Message) error {
	if a.cfg.Store.IsLeader() {
		return notDone(c.handle(a, ctx, req, resp))
	}
	s := a.relay.stream()
	if s == nil {
		return errNotDone
	}
	body, err := proto.Marshal(req)
	if err != nil {
		return err
	}
	answer := s.ask(ctx, m, body)
	if answer.err != nil {
		return answer.err
	}
	if err := proto.Unmarshal(answer.body, resp); err != nil {
		return err
	}
	a.setMember(resp)
	// Whoever wrote through this server finds it here, also in a serializable
	// read. It is done in any case: so the wait has no say in the answer.
	if answer.index > 0 {
		_ = a.cfg.Store.WaitApplied(ctx, answer.index)
	}
	return nil
}

// notDone marks refusals after which nothing was written.
func notDone(err error) error {
	var other *raftstore.NotLeaderError
	if errors.As(err, &other) {
		return errNotDone
	}
	return err
}

// awaitLeader returns nil when it is worth trying again: there was news since
// changed was taken, or some time has passed.
func (a *API) awaitLeader(ctx context.Context, changed <-chan struct{}) error {
	if err := a.hasLeader(ctx); err != nil {
		return err
	}
	timer := time.NewTimer(lookAgain)
	defer timer.Stop()
	select {
	case <-changed:
	case <-timer.C:
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-a.stopping.Done():
		return errStopped
	}
	return nil
}

// hasLeader refuses a call whose caller wants a leader (by the metadata
// hasleader) when there has been none for longer than elections take.
func (a *API) hasLeader(ctx context.Context) error {
	if loss := a.leaderLoss.current(); loss.Err() != nil && asksForLeader(ctx) {
		return context.Cause(loss)
	}
	return nil
}

// address is where the API of a server is reached, or "".
func (a *API) address(id string) (addr string) {
	if a.cfg.Address != nil {
		return a.cfg.Address(id)
	}
	a.cfg.Store.View(func(s *state.State) {
		for _, srv := range s.Servers() {
			if srv.ID == id {
				addr = srv.GRPCAddr
			}
		}
	})
	return addr
}

// propose writes commands to the log, on the leader only. An error of the state
// about any of them is returned as an error.
func (a *API) propose(ctx context.Context, cmds ...state.Command) ([]state.Result, error) {
	results, err := a.cfg.Store.Propose(ctx, cmds...)
	if err != nil {
		return nil, err
	}
	for i := range results {
		if results[i].Err != nil {
			return nil, results[i].Err
		}
	}
	noteIndex(ctx, results[len(results)-1].Index)
	return results, nil
}

// indexKey finds in a call's context where to note the entry it was written to.
type indexKey struct{}

func noteIndex(ctx context.Context, index uint64) {
	if at, ok := ctx.Value(indexKey{}).(*uint64); ok {
		*at = max(*at, index)
	}
}
