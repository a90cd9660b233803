package etcdapi

import (
	"errors"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"

	"github.com/leasehold-dev/leasehold/raftstore/mvcc"
)

// sized is a request whose size is bounded.
type sized = proto.Message

// putOp shares key and value with the request, which must not be changed after.
func putOf(r *pb.PutRequest) *mvcc.PutOp {
	return &mvcc.PutOp{
		Key: r.Key, Value: r.Value, Lease: r.Lease,
		PrevKV: r.PrevKv, IgnoreValue: r.IgnoreValue, IgnoreLease: r.IgnoreLease,
	}
}

func deleteOf(r *pb.DeleteRangeRequest) *mvcc.DeleteOp {
	return &mvcc.DeleteOp{Key: r.Key, End: r.RangeEnd, PrevKV: r.PrevKv}
}

func putTxn(r *pb.PutRequest) mvcc.Txn { return mvcc.Txn{Success: []mvcc.Op{{Put: putOf(r)}}} }

func deleteTxn(r *pb.DeleteRangeRequest) mvcc.Txn {
	return mvcc.Txn{Success: []mvcc.Op{{Delete: deleteOf(r)}}}
}

func txnOf(r *pb.TxnRequest) mvcc.Txn {
	t := mvcc.Txn{Success: opsOf(r.Success), Failure: opsOf(r.Failure)}
	if len(r.Compare) > 0 {
		t.Compare = make([]mvcc.Compare, len(r.Compare))
	}
	for i, c := range r.Compare {
		t.Compare[i] = compareOf(c)
	}
	return t
}

func opsOf(list []*pb.RequestOp) []mvcc.Op {
	if len(list) == 0 {
		return nil
	}
	ops := make([]mvcc.Op, len(list))
	for i, u := range list {
		switch v := u.Request.(type) {
		case *pb.RequestOp_RequestRange:
			op := rangeOf(v.RequestRange)
			ops[i].Range = &op
		case *pb.RequestOp_RequestPut:
			ops[i].Put = putOf(v.RequestPut)
		case *pb.RequestOp_RequestDeleteRange:
			ops[i].Delete = deleteOf(v.RequestDeleteRange)
		case *pb.RequestOp_RequestTxn:
			t := txnOf(v.RequestTxn)
			ops[i].Txn = &t
		}
	}
	return ops
}

// compareOf takes the number or the value of the field that is compared. Of
// another field's, etcd takes zero.
func compareOf(c *pb.Compare) mvcc.Compare {
	m := mvcc.Compare{
		Key: c.Key, End: c.RangeEnd,
		Target: mvcc.CompareTarget(small(c.Target)), Result: mvcc.CompareResult(small(c.Result)),
	}
	// The getters answer with zero when another field is set.
	switch c.Target {
	case pb.Compare_VERSION:
		m.Number = c.GetVersion()
	case pb.Compare_CREATE:
		m.Number = c.GetCreateRevision()
	case pb.Compare_MOD:
		m.Number = c.GetModRevision()
	case pb.Compare_LEASE:
		m.Number = c.GetLease()
	case pb.Compare_VALUE:
		m.Value = c.GetValue()
	}
	return m
}

// serializable reports whether every range of a transaction may be answered from
// a server's own state. One without ranges may not: only its compares ask, and
// who compares wants the present.
func serializable(r *pb.TxnRequest) bool {
	if len(r.Success)+len(r.Failure) == 0 {
		return false
	}
	for _, list := range [][]*pb.RequestOp{r.Success, r.Failure} {
		for _, u := range list {
			if one := u.GetRequestRange(); one == nil || !one.Serializable {
				return false
			}
		}
	}
	return true
}

// withTxnNumbers adds to a refusal for too many operations how many there were.
func withTxnNumbers(err error, r *pb.TxnRequest) error {
	if !errors.Is(err, mvcc.ErrTooManyOps) {
		return err
	}
	for _, list := range []struct {
		field string
		n     int
	}{{"compare", len(r.Compare)}, {"success", len(r.Success)}, {"failure", len(r.Failure)}} {
		if list.n > mvcc.MaxOps {
			return withNumbers(toStatus(err), "TOO_MANY_OPERATIONS", list.field, list.n, mvcc.MaxOps)
		}
	}
	n, limit := nestedOps(r, mvcc.MaxOps)
	return withNumbers(toStatus(err), "TOO_MANY_OPERATIONS", "nested txn", n, limit)
}

// nestedOps finds the transaction inside of r that has more operations than are
// left to it, and both numbers.
func nestedOps(r *pb.TxnRequest, limit int) (n, most int) {
	n = max(len(r.Compare), len(r.Success), len(r.Failure))
	if n > limit {
		return n, limit
	}
	for _, list := range [][]*pb.RequestOp{r.Success, r.Failure} {
		for _, u := range list {
			if t := u.GetRequestTxn(); t != nil {
				if in, left := nestedOps(t, limit-n); in > left {
					return in, left
				}
			}
		}
	}
	return n, limit
}

func fillPut(resp *pb.PutResponse, r *mvcc.PutResult) { resp.PrevKv = pairOf(r.Prev) }

func fillDelete(resp *pb.DeleteRangeResponse, r *mvcc.DeleteResult) {
	resp.Deleted, resp.PrevKvs = r.Deleted, pairs(r.Prev, false)
}

// fillTxn sets everything but the outer header. Inner ones have the revision
// alone, and that of a nested transaction is empty, as etcd's are.
func fillTxn(resp *pb.TxnResponse, r *mvcc.TxnResult) {
	resp.Succeeded = r.Succeeded
	if len(r.Ops) == 0 {
		return
	}
	all := make([]pb.ResponseOp, len(r.Ops))
	resp.Responses = make([]*pb.ResponseOp, len(r.Ops))
	for i := range r.Ops {
		fillOp(&all[i], &r.Ops[i])
		resp.Responses[i] = &all[i]
	}
}

func fillOp(resp *pb.ResponseOp, r *mvcc.OpResult) {
	header := &pb.ResponseHeader{Revision: r.Revision}
	switch {
	case r.Range != nil:
		one := rangeResponse(r.Range)
		one.Header = header
		resp.Response = &pb.ResponseOp_ResponseRange{ResponseRange: one}
	case r.Put != nil:
		one := &pb.PutResponse{Header: header}
		fillPut(one, r.Put)
		resp.Response = &pb.ResponseOp_ResponsePut{ResponsePut: one}
	case r.Delete != nil:
		one := &pb.DeleteRangeResponse{Header: header}
		fillDelete(one, r.Delete)
		resp.Response = &pb.ResponseOp_ResponseDeleteRange{ResponseDeleteRange: one}
	case r.Txn != nil:
		one := &pb.TxnResponse{Header: &pb.ResponseHeader{}}
		fillTxn(one, r.Txn)
		resp.Response = &pb.ResponseOp_ResponseTxn{ResponseTxn: one}
	}
}
