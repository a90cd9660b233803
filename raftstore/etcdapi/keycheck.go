package etcdapi

import (
	"fmt"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/leasehold-dev/leasehold/raftstore/access"
	"github.com/leasehold-dev/leasehold/raftstore/etcdapi/v3electionpb"
	"github.com/leasehold-dev/leasehold/raftstore/etcdapi/v3lockpb"
	"github.com/leasehold-dev/leasehold/raftstore/mvcc"
)

// checkKeys refuses a range of keys that does not lie in the scope of a caller. The
// range is as the wire says it, and is taken for what the store takes it for.
//
// A scope is for reading and for writing alike: who may write a key may also know
// what was there before (prev_kv), whether it is there (ignore_value) and when it
// changed (compares). What a Reader may not write is held back by its role.
func checkKeys(id access.Identity, key, end []byte) error {
	if id.Scope.AllKeys() {
		return nil
	}
	from, to := mvcc.Bounds(key, end)
	if id.Scope.Range(from, to) {
		return nil
	}
	return denied(id, fmt.Sprintf("keys from %q to %q", shorten(key), shorten(end)), "one key prefix that has them all")
}

// checkWriter refuses a write to those who only look.
func checkWriter(id access.Identity) error {
	if id.Role == access.Reader {
		return denied(id, "a write", "another role")
	}
	return nil
}

func checkRange(id access.Identity, r *pb.RangeRequest) error {
	return checkKeys(id, r.GetKey(), r.GetRangeEnd())
}

// checkPut leaves the lease to the leader.
func checkPut(id access.Identity, r *pb.PutRequest) error {
	if err := checkWriter(id); err != nil {
		return err
	}
	return checkKeys(id, r.GetKey(), nil)
}

func checkDelete(id access.Identity, r *pb.DeleteRangeRequest) error {
	if err := checkWriter(id); err != nil {
		return err
	}
	return checkKeys(id, r.GetKey(), r.GetRangeEnd())
}

// checkTxn looks at everything that a transaction could compare or do: both
// branches, at every depth, what the compares will leave out included.
func checkTxn(id access.Identity, r *pb.TxnRequest) error { return checkTxnAt(id, r, 0) }

// checkTxnAt bounds the depth: what is deeper, the store refuses (see mvcc.MaxOps),
// since each level takes at least one operation from what is left to the next.
func checkTxnAt(id access.Identity, r *pb.TxnRequest, depth int) error {
	if depth > mvcc.MaxOps {
		return rpctypes.ErrGRPCTooManyOps
	}
	for _, c := range r.GetCompare() {
		if err := checkKeys(id, c.GetKey(), c.GetRangeEnd()); err != nil {
			return err
		}
	}
	for _, list := range [...][]*pb.RequestOp{r.GetSuccess(), r.GetFailure()} {
		for _, op := range list {
			if err := checkOp(id, op, depth); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkOp lets an operation pass that is none: the store refuses it.
func checkOp(id access.Identity, op *pb.RequestOp, depth int) error {
	switch u := op.GetRequest().(type) {
	case nil:
		return nil
	case *pb.RequestOp_RequestRange:
		return checkRange(id, u.RequestRange)
	case *pb.RequestOp_RequestPut:
		return checkPut(id, u.RequestPut)
	case *pb.RequestOp_RequestDeleteRange:
		return checkDelete(id, u.RequestDeleteRange)
	case *pb.RequestOp_RequestTxn:
		return checkTxnAt(id, u.RequestTxn, depth+1)
	default:
		return denied(id, "an operation of an unknown kind", "one that there is")
	}
}

// checkWatched is for what a watch is told, which is what the request was taken for.
func checkWatched(id access.Identity, sp *spec) error {
	key, end := sp.bounds()
	return checkKeys(id, key, end)
}

// checkQueue is for the keys of a queue: all that begin with its name and a slash.
// Who stands in it depends on all of them.
func checkQueue(id access.Identity, name []byte) error {
	first := append(append([]byte(nil), name...), '/')
	return checkKeys(id, first, access.After(first))
}

func checkLock(id access.Identity, r *v3lockpb.LockRequest) error { return checkQueue(id, r.GetName()) }

func checkUnlock(id access.Identity, r *v3lockpb.UnlockRequest) error {
	return checkKeys(id, r.GetKey(), nil)
}

func checkCampaign(id access.Identity, r *v3electionpb.CampaignRequest) error {
	return checkQueue(id, r.GetName())
}

func checkLeader(id access.Identity, r *v3electionpb.LeaderRequest) error {
	return checkQueue(id, r.GetName())
}

// The key alone says what Proclaim and Resign write; the name beside it is not
// looked at.
func checkProclaim(id access.Identity, r *v3electionpb.ProclaimRequest) error {
	return checkKeys(id, r.GetLeader().GetKey(), nil)
}

func checkResign(id access.Identity, r *v3electionpb.ResignRequest) error {
	return checkKeys(id, r.GetLeader().GetKey(), nil)
}

// checkAlarm lets everybody ask for the alarms, as a look at an endpoint's health
// does.
func checkAlarm(id access.Identity, r *pb.AlarmRequest) error {
	if r.GetAction() == pb.AlarmRequest_GET || id.Role == access.Operator && wholeStore.in(id.Scope) {
		return nil
	}
	return denied(id, "a change of an alarm", "the role operator, with all keys")
}
