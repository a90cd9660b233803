package etcdapi

import (
	"context"
	"fmt"

	"github.com/leasehold-dev/leasehold/raftstore/access"
	"github.com/leasehold-dev/leasehold/raftstore/mvcc"
	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// A lease belongs to whoever was granted it, and to an operator of wholeCluster. Only
// the leader is asked whose one is: what it does not know of has been granted by
// nobody. A lease that is not there is answered as etcd does, to everybody alike; ids
// are drawn at random, so that there is nothing to be learned from that.

// known refuses a call about whose caller nothing is known: it has come by a way on
// which nobody was asked.
func known(ctx context.Context) error {
	if id := access.FromContext(ctx); id.Role == 0 {
		return denied(id, "a call", "a proven identity")
	}
	return nil
}

// usesAll tells who may use every lease, which need not be looked up.
func usesAll(id access.Identity) bool {
	return id.Role == access.Operator && wholeCluster.in(id.Scope)
}

// mayUse refuses a lease of somebody else's.
func mayUse(id access.Identity, s *state.State, lease state.SessionID) error {
	if x, ok := s.Session(lease); ok && !id.MayUse(x.Owner) {
		return deniedLease(id, lease)
	}
	return nil
}

func deniedLease(id access.Identity, lease state.SessionID) error {
	return denied(id, fmt.Sprintf("lease %x", uint64(lease)), "a lease of the caller's own")
}

// mayEnd refuses a lease of somebody else's, and one with keys that the caller must
// not know of, or delete: of before there were owners, or attached by an operator.
func mayEnd(id access.Identity, s *state.State, lease state.SessionID) error {
	if err := mayUse(id, s, lease); err != nil || id.Scope.AllKeys() {
		return err
	}
	for _, key := range s.SessionKeys(lease) {
		if !id.Scope.Key([]byte(key)) {
			return denied(id, fmt.Sprintf("lease %x", uint64(lease)), "a key prefix that has all keys attached to it")
		}
	}
	return nil
}

// checkOwner does a check of one lease on the leader, before anything is done.
func (a *API) checkOwner(ctx context.Context, lease state.SessionID, check func(access.Identity, *state.State, state.SessionID) error) (err error) {
	id := access.FromContext(ctx)
	if usesAll(id) {
		return nil
	}
	a.cfg.Store.View(func(s *state.State) { err = check(id, s, lease) })
	return err
}

// checkAttached refuses a transaction that could attach a key to a lease of somebody
// else's, in whichever branch, at whichever depth.
func (a *API) checkAttached(ctx context.Context, t *mvcc.Txn) (err error) {
	id := access.FromContext(ctx)
	if usesAll(id) {
		return nil
	}
	var leases []int64
	if leases = leasesOf(t, leases); len(leases) == 0 {
		return nil
	}
	a.cfg.Store.View(func(s *state.State) {
		for _, lease := range leases {
			if err = mayUse(id, s, state.SessionID(lease)); err != nil {
				return
			}
		}
	})
	return err
}

// leasesOf appends the leases that the puts of all branches name.
func leasesOf(t *mvcc.Txn, leases []int64) []int64 {
	for _, ops := range [...][]mvcc.Op{t.Success, t.Failure} {
		for i := range ops {
			switch op := &ops[i]; {
			case op.Put != nil && op.Put.Lease != 0:
				leases = append(leases, op.Put.Lease)
			case op.Txn != nil:
				leases = leasesOf(op.Txn, leases)
			}
		}
	}
	return leases
}

// ownerOf is what a lease that is granted now remembers of its caller: nothing, while
// a server of the cluster may not know that leases have owners.
func (a *API) ownerOf(ctx context.Context) (owner string) {
	id := access.FromContext(ctx)
	a.cfg.Store.View(func(s *state.State) { owner = s.Owned(id.Owner()) })
	return owner
}
