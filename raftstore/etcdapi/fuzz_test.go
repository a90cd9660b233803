package etcdapi

import (
	"context"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/leasehold-dev/leasehold/raftstore/access"
)

// listed are the codes that refusals of keys may have.
var listed = map[codes.Code]bool{
	codes.OK: true, codes.InvalidArgument: true, codes.OutOfRange: true, codes.NotFound: true, codes.ResourceExhausted: true,
}

// fuzzRequest decodes a request of any kind and carries it out: no panic, and a
// code that is in the table.
func fuzzRequest[Req any, PReq message[Req]](f *testing.F, seeds []PReq, do func(*kv, context.Context, PReq) error) {
	for _, s := range seeds {
		b, err := proto.Marshal(s)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	c := startCluster(f, 1, options{})
	k := &kv{API: c.servers[0].api}
	ctx := access.NewContext(context.Background(), access.Anybody())
	f.Fuzz(func(t *testing.T, b []byte) {
		r := PReq(new(Req))
		if proto.Unmarshal(b, r) != nil {
			return
		}
		if err := do(k, ctx, r); !listed[status.Code(err)] {
			t.Fatalf("%v: %v", r, err)
		}
	})
}

func FuzzRange(f *testing.F) {
	fuzzRequest(f, []*pb.RangeRequest{
		{Key: []byte("a")}, {Key: []byte("a"), RangeEnd: []byte("b"), Limit: 1, SortOrder: 1, SortTarget: 4},
		{Key: []byte{0}, RangeEnd: []byte{0}, Revision: -1, MinModRevision: 1, MaxCreateRevision: 2, KeysOnly: true},
		{Key: []byte("b"), RangeEnd: []byte("a"), CountOnly: true, Serializable: true, SortTarget: 700},
	}, func(k *kv, ctx context.Context, r *pb.RangeRequest) error { _, err := k.Range(ctx, r); return err })
}

func FuzzPut(f *testing.F) {
	fuzzRequest(f, []*pb.PutRequest{
		{Key: []byte("a"), Value: []byte("v"), PrevKv: true}, {Key: []byte{0}, Lease: -1}, {Key: []byte("a"), IgnoreValue: true, IgnoreLease: true},
	}, func(k *kv, ctx context.Context, r *pb.PutRequest) error { _, err := k.Put(ctx, r); return err })
}

func FuzzDeleteRange(f *testing.F) {
	fuzzRequest(f, []*pb.DeleteRangeRequest{
		{Key: []byte("a"), PrevKv: true}, {Key: []byte{0}, RangeEnd: []byte{0}}, {Key: []byte("b"), RangeEnd: []byte("a")},
	}, func(k *kv, ctx context.Context, r *pb.DeleteRangeRequest) error {
		_, err := k.DeleteRange(ctx, r)
		return err
	})
}

func FuzzTxn(f *testing.F) {
	compare := &pb.Compare{Key: []byte("a"), Target: pb.Compare_VALUE, TargetUnion: &pb.Compare_Value{Value: []byte("v")}}
	odd := &pb.Compare{Key: []byte("a"), RangeEnd: []byte{0}, Target: 300, Result: 400, TargetUnion: &pb.Compare_Version{Version: 1}}
	inner := &pb.TxnRequest{Compare: []*pb.Compare{odd}, Failure: []*pb.RequestOp{putUnion("c", "1"), rangeUnion("c", true)}}
	fuzzRequest(f, []*pb.TxnRequest{
		{}, {Compare: []*pb.Compare{compare}, Success: []*pb.RequestOp{putUnion("a", "1"), deleteUnion("b")}, Failure: []*pb.RequestOp{rangeUnion("a", false), {}}},
		{Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestTxn{RequestTxn: inner}}, putUnion("d", "2")}},
	}, func(k *kv, ctx context.Context, r *pb.TxnRequest) error { _, err := k.Txn(ctx, r); return err })
}

func FuzzCompact(f *testing.F) {
	fuzzRequest(f, []*pb.CompactionRequest{{}, {Revision: 1}, {Revision: -5, Physical: true}, {Revision: 1 << 62}},
		func(k *kv, ctx context.Context, r *pb.CompactionRequest) error {
			_, err := k.Compact(ctx, r)
			return err
		})
}
