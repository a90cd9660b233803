package difftest

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"sync"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"
)

// Exemptions is what is not compared field by field, and why.
var Exemptions = map[string]string{
	"header.cluster_id":           "each cluster has its own; it must not be zero and never change",
	"header.member_id":            "each server has its own; it must not be zero",
	"header.raft_term":            "counts elections of two different groups; it must not be zero nor fall",
	"lease ID, when 0 was asked":  "the server draws it; it must be positive",
	"remaining TTL":               "whole seconds, read one after the other on a busy machine; they may differ by 3",
	"order of LeaseTimeToLive":    "etcd tells the keys in the order of a Go map",
	"order of LeaseLeases":        "etcd sorts by the time left, which may be equal",
	"lease of a keys-only pair":   "etcd 3.7 answers from its index, which has none; etcd to 3.6 and Leasehold tell it",
	"HashKV.hash":                 "sums the representation on disk",
	"second end of a watch":       "etcd keeps one that compaction has ended and confirms when it is cancelled",
	"HashKV to the compaction":    "not asked: etcd keeps the sums that it took when it compacted",
	"compaction at revision 0":    "not asked: etcd remembers the first as a compaction",
	"boundaries of watch answers": "etcd joins events by the time at which it reads them; each revision must be whole, see watchlog.go",
}

// headerCheck watches over the fields of the header that are not compared.
type headerCheck struct {
	mu      sync.Mutex
	cluster uint64
	term    uint64
}

// header checks the exempt fields and blanks them.
func (c *headerCheck) header(h *pb.ResponseHeader) error {
	if h == nil {
		return fmt.Errorf("no header")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cluster == 0 {
		c.cluster = h.ClusterId
	}
	switch {
	case h.ClusterId == 0 || h.ClusterId != c.cluster:
		return fmt.Errorf("header.cluster_id is %x after %x", h.ClusterId, c.cluster)
	case h.MemberId == 0:
		return fmt.Errorf("header.member_id is 0")
	case h.RaftTerm == 0 || h.RaftTerm < c.term:
		return fmt.Errorf("header.raft_term is %d after %d", h.RaftTerm, c.term)
	}
	c.term = h.RaftTerm
	h.ClusterId, h.MemberId, h.RaftTerm = 0, 0, 0
	return nil
}

// level makes equal what may differ in the answers to req, within its bounds.
func level(req, a, b proto.Message) {
	switch a := a.(type) {
	case *pb.RangeResponse:
		levelRange(req.(*pb.RangeRequest), a, b.(*pb.RangeResponse))
	case *pb.TxnResponse:
		levelTxn(req.(*pb.TxnRequest), a, b.(*pb.TxnResponse))
	case *pb.LeaseTimeToLiveResponse:
		b := b.(*pb.LeaseTimeToLiveResponse)
		levelTTL(&a.TTL, &b.TTL)
		slices.SortFunc(a.Keys, bytes.Compare)
		slices.SortFunc(b.Keys, bytes.Compare)
	case *pb.LeaseLeasesResponse:
		sortLeases(a)
		sortLeases(b.(*pb.LeaseLeasesResponse))
	case *pb.LeaseGrantResponse:
		levelID(&a.ID, &b.(*pb.LeaseGrantResponse).ID)
	case *pb.HashKVResponse:
		a.Hash, b.(*pb.HashKVResponse).Hash = 0, 0
	}
}

func levelRange(req *pb.RangeRequest, a, b *pb.RangeResponse) {
	if req.KeysOnly {
		for _, kv := range slices.Concat(a.Kvs, b.Kvs) {
			kv.Lease = 0
		}
	}
}

func levelTxn(req *pb.TxnRequest, a, b *pb.TxnResponse) {
	ops := req.Failure
	if a.Succeeded {
		ops = req.Success
	}
	for i, op := range ops {
		if i >= len(a.Responses) || i >= len(b.Responses) {
			return
		}
		x, y := a.Responses[i], b.Responses[i]
		if r := op.GetRequestRange(); r != nil && x.GetResponseRange() != nil && y.GetResponseRange() != nil {
			levelRange(r, x.GetResponseRange(), y.GetResponseRange())
		} else if t := op.GetRequestTxn(); t != nil && x.GetResponseTxn() != nil && y.GetResponseTxn() != nil {
			levelTxn(t, x.GetResponseTxn(), y.GetResponseTxn())
		}
	}
}

func levelTTL(a, b *int64) {
	if *a > 0 && *b > 0 && *a-*b <= 3 && *b-*a <= 3 {
		*b = *a
	}
}

// drawnLease is where the ids lie that no client of the workload asks for.
const drawnLease = 1 << 32

func levelID(a, b *int64) {
	if *a > drawnLease && *b > drawnLease {
		*b = *a
	}
}

// sortLeases orders the list and leaves out ids that the server drew.
func sortLeases(r *pb.LeaseLeasesResponse) {
	slices.SortFunc(r.Leases, func(a, b *pb.LeaseStatus) int { return cmp.Compare(a.ID, b.ID) })
}
