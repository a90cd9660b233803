package difftest

import (
	"bytes"
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// txnRequest is a tree of transactions. Most are valid: their branches put
// keys that nothing else in the tree touches. The wild ones do as they like.
func (g *Generator) txnRequest() *pb.TxnRequest {
	switch {
	case g.one(400):
		return g.crowd()
	case g.one(10):
		return g.txn(&txnDraw{wild: true}, 0)
	}
	return g.txn(&txnDraw{free: g.shuffled()}, 0)
}

// readTxn is a transaction that only reads, much.
func (g *Generator) readTxn() *pb.TxnRequest {
	t := &pb.TxnRequest{Compare: []*pb.Compare{g.compare(false)}}
	for range 10 + g.rng.IntN(20) {
		t.Success = append(t.Success, g.rangeOp(false))
		t.Failure = append(t.Failure, g.rangeOp(false))
	}
	return t
}

// txnDraw is what the branches of one tree have left.
type txnDraw struct {
	wild bool
	free [][]byte // keys to put, each once
}

func (g *Generator) shuffled() [][]byte {
	keys := slices.Clone(g.keys)
	g.rng.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
	return keys
}

func (g *Generator) txn(d *txnDraw, depth int) *pb.TxnRequest {
	t := &pb.TxnRequest{}
	for range []int{0, 0, 1, 1, 1, 2, 3}[g.rng.IntN(7)] {
		t.Compare = append(t.Compare, g.compare(d.wild))
	}
	t.Success, t.Failure = g.branch(d, depth), g.branch(d, depth)
	return t
}

func (g *Generator) branch(d *txnDraw, depth int) []*pb.RequestOp {
	var ops []*pb.RequestOp
	for range []int{0, 1, 3, 6, 8, 12, 16, 20}[g.rng.IntN(8)] >> (2 * depth) {
		ops = append(ops, g.op(d, depth))
	}
	return ops
}

func (g *Generator) op(d *txnDraw, depth int) *pb.RequestOp {
	switch n := g.rng.IntN(20); {
	case d.wild && n == 0:
		return &pb.RequestOp{}
	case depth < 3 && n < 3:
		return &pb.RequestOp{Request: &pb.RequestOp_RequestTxn{RequestTxn: g.txn(d, depth+1)}}
	case n < 8:
		if put := g.txnPut(d); put != nil {
			return &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: put}}
		}
	case n < 10:
		if del := g.txnDelete(d); del != nil {
			return &pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: del}}
		}
	}
	return g.rangeOp(d.wild)
}

// rangeOp reads, mostly without an error unless wild.
func (g *Generator) rangeOp(wild bool) *pb.RequestOp {
	r := g.rangeRequest()
	if !wild {
		r.SortOrder, r.SortTarget = abs(r.SortOrder)%3, abs(r.SortTarget)%5
		if len(r.Key) == 0 {
			r.Key = []byte{'k'}
		}
		if r.Revision != 0 && !g.one(40) {
			r.Revision = g.Revision
		}
	}
	return &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: r}}
}

// take draws a key that is still free.
func (d *txnDraw) take() []byte {
	if len(d.free) == 0 {
		return nil
	}
	k := d.free[0]
	d.free = d.free[1:]
	return k
}

func (g *Generator) txnPut(d *txnDraw) *pb.PutRequest {
	p := g.putRequest()
	if d.wild {
		return p
	}
	if p.Key = d.take(); p.Key == nil {
		return nil
	}
	if !g.one(30) {
		p.IgnoreValue, p.IgnoreLease = false, false
	}
	return p
}

func (g *Generator) txnDelete(d *txnDraw) *pb.DeleteRangeRequest {
	del := g.deleteRequest()
	if d.wild {
		return del
	}
	if del.Key = d.take(); del.Key == nil {
		return nil
	}
	del.RangeEnd = nil
	if g.one(5) { // a range in which nothing can be put
		del.Key = append(bytes.Clone(del.Key), 0, 0, 0)
		del.RangeEnd = append(bytes.Clone(del.Key), 0xff)
	}
	return del
}

func (g *Generator) compare(wild bool) *pb.Compare {
	c := &pb.Compare{Result: pb.Compare_CompareResult(g.rng.IntN(4)), Target: pb.Compare_CompareTarget(g.rng.IntN(5)), Key: g.key()}
	if len(c.Key) == 0 && !wild {
		c.Key = []byte{'k'}
	}
	if g.one(5) {
		c.RangeEnd = g.end(c.Key)
	}
	union := c.Target
	if wild && g.one(6) {
		union = pb.Compare_CompareTarget(g.rng.IntN(6)) // another field than the target's, or none
	}
	switch union {
	case pb.Compare_VERSION:
		c.TargetUnion = &pb.Compare_Version{Version: int64(g.rng.IntN(5))}
	case pb.Compare_CREATE:
		c.TargetUnion = &pb.Compare_CreateRevision{CreateRevision: g.number()}
	case pb.Compare_MOD:
		c.TargetUnion = &pb.Compare_ModRevision{ModRevision: g.number()}
	case pb.Compare_VALUE:
		c.TargetUnion = &pb.Compare_Value{Value: g.value()}
	case pb.Compare_LEASE:
		c.TargetUnion = &pb.Compare_Lease{Lease: g.lease()}
	}
	return c
}

// crowd is a transaction around the limit of 128 operations in a list, or of
// those that a nested one has left.
func (g *Generator) crowd() *pb.TxnRequest {
	t, n := &pb.TxnRequest{}, 126+g.rng.IntN(4)
	ops := make([]*pb.RequestOp, 0, n)
	for range n {
		ops = append(ops, &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: &pb.RangeRequest{Key: []byte{'a'}}}})
	}
	switch g.rng.IntN(4) {
	case 0:
		t.Success = ops
	case 1:
		t.Compare = []*pb.Compare{g.compare(false)}
		t.Failure = ops
	case 2:
		for range n {
			t.Compare = append(t.Compare, &pb.Compare{Key: []byte{'a'}})
		}
	case 3:
		inner := &pb.TxnRequest{Success: ops[:n-2]}
		t.Success = append(ops[n-2:n:n], &pb.RequestOp{Request: &pb.RequestOp_RequestTxn{RequestTxn: inner}})
	}
	return t
}

func abs[T ~int32](n T) T {
	if n < 0 {
		return -n
	}
	return n
}
