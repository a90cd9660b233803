package etcdapi

import (
	"math"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/leasehold-dev/leasehold/raftstore/mvcc"
)

// small keeps a number of etcd's that is none of its enum's from becoming another
// one's.
func small[E ~int32](n E) uint8 {
	if n < 0 || n > math.MaxUint8 {
		return math.MaxUint8
	}
	return uint8(n)
}

func rangeOf(r *pb.RangeRequest) mvcc.RangeOp {
	return mvcc.RangeOp{
		Key: r.Key, End: r.RangeEnd, Revision: r.Revision, Limit: r.Limit,
		Target: mvcc.SortTarget(small(r.SortTarget)), Order: mvcc.SortOrder(small(r.SortOrder)),
		KeysOnly: r.KeysOnly, CountOnly: r.CountOnly,
		MinModRevision: r.MinModRevision, MaxModRevision: r.MaxModRevision,
		MinCreateRevision: r.MinCreateRevision, MaxCreateRevision: r.MaxCreateRevision,
	}
}

// rangeResponse shares keys and values with the store: whoever gets it only
// encodes it.
func rangeResponse(r *mvcc.RangeResult) *pb.RangeResponse {
	return &pb.RangeResponse{Kvs: pairs(r.KVs, r.KeysOnly), More: r.More, Count: r.Count}
}

// pairs makes one allocation for the pairs and one for the list.
func pairs(kvs []*mvcc.KeyValue, keysOnly bool) []*mvccpb.KeyValue {
	if len(kvs) == 0 {
		return nil
	}
	all := make([]mvccpb.KeyValue, len(kvs))
	list := make([]*mvccpb.KeyValue, len(kvs))
	for i, kv := range kvs {
		fillPair(&all[i], kv)
		if keysOnly {
			all[i].Value = nil
		}
		list[i] = &all[i]
	}
	return list
}

// pairOf is a pair in etcd's words; nil stays nil.
func pairOf(kv *mvcc.KeyValue) *mvccpb.KeyValue {
	if kv == nil {
		return nil
	}
	p := &mvccpb.KeyValue{}
	fillPair(p, kv)
	return p
}

func fillPair(p *mvccpb.KeyValue, kv *mvcc.KeyValue) {
	p.Key, p.Value, p.Lease = kv.Key, kv.Value, kv.Lease
	p.CreateRevision, p.ModRevision, p.Version = kv.CreateRevision, kv.ModRevision, kv.Version
}
