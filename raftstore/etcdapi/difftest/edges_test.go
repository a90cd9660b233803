package difftest

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"
)

// edge sends one call to both sides and fails the test on a difference.
func (r *Runner) edge(t *testing.T, method string, req proto.Message) Answer {
	t.Helper()
	c := &Call{Method: method, Req: req, At: r.Operations}
	if c.local() {
		must(t, r.catchUp(t.Context(), c.At))
	}
	x, err := r.both(t.Context(), c)
	if err != nil {
		t.Error(shorten(err.Error(), 4000))
	}
	r.Operations++
	r.learn(c, x)
	return x
}

// TestEdges compares what chance seldom meets: limits, leases that expire or
// whose id the server draws, compaction seen by reads and watches, fragments.
func TestEdges(t *testing.T) {
	r := NewRunner(etcdSide(t, "etcd", 1), leaseholdSide(t, 3), 1)
	t.Cleanup(r.Close)
	must(t, r.Start(t.Context()))
	for _, edge := range []struct {
		name string
		test func(*testing.T, *Runner)
	}{
		{"limits", edgeLimits}, {"keys", edgeKeys}, {"compaction", edgeCompaction}, {"reattached", edgeReattached},
		{"drawn lease", edgeDrawnLease}, {"expiry", edgeExpiry}, {"fragments", edgeFragments}, {"unsupported", edgeErrors},
	} {
		t.Run(edge.name, func(t *testing.T) { edge.test(t, r) })
	}
}

// edgeLimits: 1.5 MiB a request, 128 operations a transaction. etcd counts some
// bytes of its log entry, too, so not every size is asked for.
func edgeLimits(t *testing.T, r *Runner) {
	for _, size := range []int{1_000_000, 1_572_700, 1_572_864, 1_600_000} {
		r.edge(t, methodPut, &pb.PutRequest{Key: []byte("large"), Value: bytes.Repeat([]byte{'x'}, size)})
		r.edge(t, methodTxn, &pb.TxnRequest{Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestPut{
			RequestPut: &pb.PutRequest{Key: []byte("large"), Value: bytes.Repeat([]byte{'y'}, size)}}}}})
	}
	r.edge(t, methodRange, &pb.RangeRequest{Key: []byte("large"), KeysOnly: true})
	for _, n := range []int{127, 128, 129} {
		txn := &pb.TxnRequest{}
		for i := range n {
			txn.Success = append(txn.Success, &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: fmt.Appendf(nil, "many/%d", i)}}})
		}
		r.edge(t, methodTxn, txn)
		r.edge(t, methodTxn, &pb.TxnRequest{Failure: txn.Success, Compare: []*pb.Compare{{Key: []byte("many/0"), Result: pb.Compare_LESS}}})
	}
	r.edge(t, methodDelete, &pb.DeleteRangeRequest{Key: []byte("large")})
}

// edgeKeys: the whole store, inverted ranges, an empty key everywhere.
func edgeKeys(t *testing.T, r *Runner) {
	for _, span := range [][2]string{{"", ""}, {"", "\x00"}, {"\x00", "\x00"}, {"m", "\x00"}, {"many/", "many0"}, {"z", "a"}, {"a", "a"}, {"\xff", "\x00"}} {
		for _, rev := range []int64{0, r.gen.Revision, r.gen.Revision + 1, -1} {
			r.edge(t, methodRange, &pb.RangeRequest{Key: []byte(span[0]), RangeEnd: []byte(span[1]), Limit: 7, Revision: rev})
		}
		r.edge(t, methodDelete, &pb.DeleteRangeRequest{Key: []byte(span[0]), RangeEnd: []byte(span[1]), PrevKv: true})
		r.edge(t, methodTxn, &pb.TxnRequest{Compare: []*pb.Compare{{Key: []byte(span[0]), RangeEnd: []byte(span[1])}}})
	}
	r.edge(t, methodPut, &pb.PutRequest{Value: []byte("x")})
}

// edgeCompaction is O-54: ten puts, compaction at the fifth, reads and watches
// around it.
func edgeCompaction(t *testing.T, r *Runner) {
	for i := range 10 {
		r.edge(t, methodPut, &pb.PutRequest{Key: []byte("c"), Value: fmt.Append(nil, i)})
	}
	at := r.gen.Revision - 5
	r.edge(t, methodCompact, &pb.CompactionRequest{Revision: at, Physical: true})
	for _, rev := range []int64{at - 1, at, at + 1, r.gen.Revision, r.gen.Revision + 1000} {
		r.edge(t, methodRange, &pb.RangeRequest{Key: []byte("c"), Revision: rev})
		p, err := openPair(r.a, r.b, int(rev))
		must(t, err)
		must(t, r.catchUp(t.Context(), int(rev)))
		must(t, p.create(&pb.WatchCreateRequest{Key: []byte("c"), StartRevision: rev, PrevKv: true}, r.gen.Compacted))
		_, err = p.settle(r.gen.Revision)
		p.close()
		must(t, err)
	}
	for _, rev := range []int64{at, at - 1, 1, -1, r.gen.Revision + 1} {
		r.edge(t, methodCompact, &pb.CompactionRequest{Revision: rev})
	}
}

// edgeReattached is O-09: a key goes from lease to lease.
func edgeReattached(t *testing.T, r *Runner) {
	get := &pb.RangeRequest{Key: []byte("moved")}
	for _, steps := range [][]int64{{31, 32}, {31, 0}, {31, 31}} {
		for _, id := range []int64{31, 32} {
			r.edge(t, methodGrant, &pb.LeaseGrantRequest{ID: id, TTL: 600})
		}
		for _, id := range steps {
			r.edge(t, methodPut, &pb.PutRequest{Key: []byte("moved"), Lease: id})
		}
		for _, id := range []int64{31, 32, 31} {
			r.edge(t, methodTimeToLive, &pb.LeaseTimeToLiveRequest{ID: id, Keys: true})
			r.edge(t, methodRevoke, &pb.LeaseRevokeRequest{ID: id})
			r.edge(t, methodRange, get)
		}
	}
}

// edgeDrawnLease: the servers draw the ids and raise what is too short; all else is
// the same.
func edgeDrawnLease(t *testing.T, r *Runner) {
	for _, ttl := range []int64{-5, 0, 1, 100, 9_000_000_000, 9_000_000_001} {
		var ids [2]int64
		var answers [2]Answer
		for i, s := range []*Side{r.a, r.b} {
			answers[i] = s.Do(t.Context(), &Call{Method: methodGrant, Req: &pb.LeaseGrantRequest{TTL: ttl}, At: i})
			if g, ok := answers[i].Resp.(*pb.LeaseGrantResponse); ok {
				ids[i] = g.ID
				if g.ID <= 0 {
					t.Errorf("%s drew %d", s.Name, g.ID)
				}
			}
		}
		must(t, compare(r.a, r.b, &pb.LeaseGrantRequest{}, answers[0], answers[1]))
		for i, s := range []*Side{r.a, r.b} {
			answers[i] = s.Do(t.Context(), &Call{Method: methodRevoke, Req: &pb.LeaseRevokeRequest{ID: ids[i]}})
		}
		must(t, compare(r.a, r.b, &pb.LeaseRevokeRequest{}, answers[0], answers[1]))
	}
}

// edgeExpiry lets a lease run out: its keys go at one revision, in key order.
func edgeExpiry(t *testing.T, r *Runner) {
	p, err := openPair(r.a, r.b, 1)
	must(t, err)
	defer p.close()
	must(t, r.catchUp(t.Context(), 1))
	must(t, p.create(&pb.WatchCreateRequest{Key: []byte("x/"), RangeEnd: []byte("x0"), PrevKv: true}, 0))
	r.edge(t, methodGrant, &pb.LeaseGrantRequest{ID: 77, TTL: 2})
	for _, k := range []string{"x/2", "x/1", "x/3"} {
		r.edge(t, methodPut, &pb.PutRequest{Key: []byte(k), Lease: 77})
	}
	want := r.gen.Revision + 1
	must(t, poll(within(t, 30*time.Second), 50*time.Millisecond, func() bool {
		return !slices.ContainsFunc([]*Side{r.a, r.b}, func(s *Side) bool {
			a := s.Do(t.Context(), &Call{Method: methodRange, Req: &pb.RangeRequest{Key: []byte("x/1")}})
			return a.Err != nil || a.Resp.(*pb.RangeResponse).Count > 0
		})
	}))
	r.gen.Revision = want
	n, err := p.settle(want)
	must(t, err)
	if n != 6 {
		t.Errorf("%d events, want three puts and three deletions", n)
	}
	r.edge(t, methodTimeToLive, &pb.LeaseTimeToLiveRequest{ID: 77, Keys: true})
	r.edge(t, methodKeepAlive, &pb.LeaseKeepAliveRequest{ID: 77})
	r.edge(t, methodRevoke, &pb.LeaseRevokeRequest{ID: 77})
	r.edge(t, methodPut, &pb.PutRequest{Key: []byte("x/1"), Lease: 77})
}

// edgeFragments: history of several MiB, asked for in pieces and not.
func edgeFragments(t *testing.T, r *Runner) {
	from := r.gen.Revision + 1
	for i := range 12 {
		r.edge(t, methodPut, &pb.PutRequest{Key: []byte("f"), Value: bytes.Repeat([]byte{byte('a' + i)}, 400_000)})
	}
	for _, fragment := range []bool{true, false} {
		p, err := openPair(r.a, r.b, 2)
		must(t, err)
		must(t, r.catchUp(t.Context(), 2))
		must(t, p.create(&pb.WatchCreateRequest{Key: []byte("f"), StartRevision: from, PrevKv: true, Fragment: fragment}, 0))
		n, err := p.settle(r.gen.Revision)
		p.close()
		must(t, err)
		if n != 12 {
			t.Errorf("%d events, want 12", n)
		}
	}
}

// edgeErrors: what only fails.
func edgeErrors(t *testing.T, r *Runner) {
	put := func(p *pb.PutRequest) *pb.RequestOp {
		return &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: p}}
	}
	k := []byte("e")
	for _, p := range []*pb.PutRequest{
		{Key: k, IgnoreValue: true}, {Key: k, IgnoreLease: true}, {Key: k, IgnoreValue: true, Value: k}, {Key: k, IgnoreLease: true, Lease: 5},
		{Key: k, Lease: 5}, {Key: k, Lease: -1}, {Lease: 5}, {IgnoreValue: true, Value: k},
	} {
		r.edge(t, methodPut, p)
		r.edge(t, methodTxn, &pb.TxnRequest{Success: []*pb.RequestOp{put(&pb.PutRequest{Key: []byte("other")}), put(p)}})
		r.edge(t, methodTxn, &pb.TxnRequest{Failure: []*pb.RequestOp{put(p)}}) // in the branch that is not taken
	}
	for _, txn := range []*pb.TxnRequest{
		{}, {Success: []*pb.RequestOp{{}}}, {Success: []*pb.RequestOp{put(&pb.PutRequest{Key: k}), put(&pb.PutRequest{Key: k})}},
		{Success: []*pb.RequestOp{put(&pb.PutRequest{Key: k}), {Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: &pb.DeleteRangeRequest{Key: k}}}}},
		{Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestTxn{RequestTxn: &pb.TxnRequest{}}}}},
		{Compare: []*pb.Compare{{}}}, {Compare: []*pb.Compare{{Key: k, Target: 9}}}, {Compare: []*pb.Compare{{Key: k, Result: 9}}},
	} {
		r.edge(t, methodTxn, txn)
	}
	r.edge(t, methodRevoke, &pb.LeaseRevokeRequest{ID: 0})
	r.edge(t, methodTimeToLive, &pb.LeaseTimeToLiveRequest{ID: 0})
	r.edge(t, methodKeepAlive, &pb.LeaseKeepAliveRequest{ID: 0})
	r.edge(t, methodGrant, &pb.LeaseGrantRequest{ID: -7, TTL: 60})
	r.edge(t, methodRevoke, &pb.LeaseRevokeRequest{ID: -7})
	r.edge(t, methodRange, &pb.RangeRequest{Key: k, SortOrder: 9})
	r.edge(t, methodRange, &pb.RangeRequest{Key: k, SortTarget: 9})
	r.edge(t, methodHashKV, &pb.HashKVRequest{Revision: r.gen.Revision + 1})
}
