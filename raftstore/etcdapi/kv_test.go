package etcdapi

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func put(t testing.TB, kv pb.KVClient, key, value string) *pb.PutResponse {
	t.Helper()
	resp, err := kv.Put(testContext(t), &pb.PutRequest{Key: []byte(key), Value: []byte(value), PrevKv: true})
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

func get(t testing.TB, kv pb.KVClient, key string) *pb.RangeResponse {
	t.Helper()
	resp, err := kv.Range(testContext(t), &pb.RangeRequest{Key: []byte(key)})
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

func putUnion(key, value string) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: []byte(key), Value: []byte(value)}}}
}

func deleteUnion(key string) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: &pb.DeleteRangeRequest{Key: []byte(key)}}}
}

func rangeUnion(key string, stale bool) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: &pb.RangeRequest{Key: []byte(key), Serializable: stale}}}
}

// Every server writes and reads, and says who it is.
func TestEveryServerServesKeys(t *testing.T) {
	c := startCluster(t, 3, options{})
	term := c.leader(t).store.Term()
	for i, s := range c.servers {
		key := "k" + s.id
		before := put(t, s.kv(), key, "1")
		if before.PrevKv != nil {
			t.Errorf("%s: first put has a previous pair: %v", s.id, before.PrevKv)
		}
		after := put(t, s.kv(), key, "2")
		if string(after.PrevKv.GetValue()) != "1" {
			t.Errorf("%s: previous pair is %v", s.id, after.PrevKv)
		}
		if want := int64(3 + 2*i); after.Header.Revision != want {
			t.Errorf("%s: revision %d, want %d", s.id, after.Header.Revision, want)
		}
		h := after.Header
		if h.MemberId != s.api.self.member || h.ClusterId != s.api.clusterID() || h.RaftTerm != term || h.ClusterId == 0 || h.MemberId == 0 {
			t.Errorf("%s: header %v, want member %d, cluster %d, term %d", s.id, h, s.api.self.member, s.api.clusterID(), term)
		}
		for _, other := range c.servers { // linearizable everywhere
			if got := get(t, other.kv(), key); len(got.Kvs) != 1 || string(got.Kvs[0].Value) != "2" || got.Header.MemberId != other.api.self.member {
				t.Errorf("%s after a put at %s: %v", other.id, s.id, got)
			}
		}
		// Whoever wrote through a server finds it there, without asking for more.
		resp, err := s.kv().Range(testContext(t), &pb.RangeRequest{Key: []byte(key), Serializable: true})
		if err != nil || len(resp.Kvs) != 1 || string(resp.Kvs[0].Value) != "2" {
			t.Errorf("%s: serializable read after a write: %v, %v", s.id, resp, err)
		}
	}
}

func TestTxnHeaders(t *testing.T) {
	c := startCluster(t, 3, options{})
	for _, s := range c.servers {
		before := get(t, s.kv(), "x").Header.Revision
		resp, err := s.kv().Txn(testContext(t), &pb.TxnRequest{
			Success: []*pb.RequestOp{
				rangeUnion("a", false), putUnion("a", "1"), rangeUnion("a", false), deleteUnion("none"),
				{Request: &pb.RequestOp_RequestTxn{RequestTxn: &pb.TxnRequest{Success: []*pb.RequestOp{putUnion("b", "2")}}}},
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		if !resp.Succeeded || resp.Header.Revision != before+1 || resp.Header.MemberId != s.api.self.member {
			t.Errorf("%s: %v", s.id, resp)
		}
		inner := []*pb.ResponseHeader{
			resp.Responses[0].GetResponseRange().Header, resp.Responses[1].GetResponsePut().Header,
			resp.Responses[2].GetResponseRange().Header, resp.Responses[3].GetResponseDeleteRange().Header,
			resp.Responses[4].GetResponseTxn().Responses[0].GetResponsePut().Header,
		}
		for i, want := range []int64{before, before + 1, before + 1, before + 1, before + 1} {
			if h := inner[i]; h.Revision != want || h.MemberId != 0 || h.ClusterId != 0 || h.RaftTerm != 0 {
				t.Errorf("%s: header %d is %v, want revision %d alone", s.id, i, h, want)
			}
		}
		if h := resp.Responses[4].GetResponseTxn().Header; h == nil || h.Revision != 0 {
			t.Errorf("%s: header of the nested transaction is %v, want an empty one", s.id, h)
		}
		if kvs := resp.Responses[2].GetResponseRange().Kvs; len(kvs) != 1 || string(kvs[0].Value) != "1" {
			t.Errorf("%s: the range does not see the put before it: %v", s.id, kvs)
		}
	}
}

// Case O-81.
func TestO81LimitsOfRequests(t *testing.T) {
	c := startCluster(t, 3, options{})
	for _, s := range []*testServer{c.leader(t), c.follower(t)} {
		ctx, kv := testContext(t), s.kv()
		before := get(t, kv, "x").Header.Revision
		many := func(n int) *pb.TxnRequest {
			r := &pb.TxnRequest{}
			for i := range n {
				r.Success = append(r.Success, putUnion(fmt.Sprintf("%s/%03d", s.id, i), "v"))
			}
			return r
		}
		nested := many(100)
		nested.Success = append(nested.Success, &pb.RequestOp{Request: &pb.RequestOp_RequestTxn{RequestTxn: many(29)}})
		large := func(n int) *pb.PutRequest { return &pb.PutRequest{Key: []byte("large"), Value: make([]byte, n)} }
		for _, tc := range []struct {
			name          string
			do            func() error
			want          error
			actual, limit string // of the detail; "" for none
		}{
			{"129 operations", func() error { _, err := kv.Txn(ctx, many(129)); return err }, rpctypes.ErrGRPCTooManyOps, "129", "128"},
			{"101 and 29 operations", func() error { _, err := kv.Txn(ctx, nested); return err }, rpctypes.ErrGRPCTooManyOps, "29", "27"},
			{"same key twice", func() error {
				_, err := kv.Txn(ctx, &pb.TxnRequest{Success: []*pb.RequestOp{putUnion("twice", "1"), putUnion("twice", "2")}})
				return err
			}, rpctypes.ErrGRPCDuplicateKey, "", ""},
			{"put and delete", func() error {
				_, err := kv.Txn(ctx, &pb.TxnRequest{Success: []*pb.RequestOp{putUnion("both", "1"), deleteUnion("both")}})
				return err
			}, rpctypes.ErrGRPCDuplicateKey, "", ""},
			{"empty key", func() error { _, err := kv.Put(ctx, &pb.PutRequest{Value: []byte("v")}); return err }, rpctypes.ErrGRPCEmptyKey, "", ""},
			{"1.5 MiB", func() error { _, err := kv.Put(ctx, large(3<<19)); return err }, rpctypes.ErrGRPCRequestTooLarge, fmt.Sprint(3<<19 + 11), fmt.Sprint(3 << 19)},
		} {
			err := tc.do()
			want := status.Convert(tc.want)
			got := status.Convert(err)
			if got.Code() != want.Code() || got.Message() != want.Message() {
				t.Errorf("%s, %s: %v, want %v", s.id, tc.name, err, tc.want)
			}
			var actual, limit string
			for _, d := range got.Details() {
				if info, ok := d.(*errdetails.ErrorInfo); ok {
					actual, limit = info.Metadata["actual"], info.Metadata["limit"]
				}
			}
			if actual != tc.actual || limit != tc.limit {
				t.Errorf("%s, %s: actual %q, limit %q, want %q and %q", s.id, tc.name, actual, limit, tc.actual, tc.limit)
			}
		}
		if after := get(t, kv, "x").Header.Revision; after != before {
			t.Errorf("%s: revision went from %d to %d: something refused was done", s.id, before, after)
		}
		if _, err := kv.Txn(ctx, many(128)); err != nil {
			t.Errorf("%s: 128 operations: %v", s.id, err)
		}
		if _, err := kv.Put(ctx, large(3<<19-100)); err != nil {
			t.Errorf("%s: just below 1.5 MiB: %v", s.id, err)
		}
		for _, other := range c.servers {
			if got := get(t, other.kv(), "large"); len(got.Kvs) != 1 || len(got.Kvs[0].Value) != 3<<19-100 {
				t.Errorf("%s has no large value", other.id)
			}
		}
	}
}

func TestRefusalsOfKV(t *testing.T) {
	c := startCluster(t, 1, options{})
	s := c.servers[0]
	ctx, kv := testContext(t), s.kv()
	for i := range 10 {
		put(t, kv, "k", fmt.Sprint(i))
	}
	if resp, err := kv.Compact(ctx, &pb.CompactionRequest{Revision: 5}); err != nil || resp.Header.Revision != 11 {
		t.Fatalf("compact: %v, %v", resp, err)
	}
	k := []byte("k")
	for name, tc := range map[string]struct {
		do   func() error
		want error
	}{
		"compacted":       {func() error { _, err := kv.Range(ctx, &pb.RangeRequest{Key: k, Revision: 4}); return err }, rpctypes.ErrGRPCCompacted},
		"future":          {func() error { _, err := kv.Range(ctx, &pb.RangeRequest{Key: k, Revision: 1011}); return err }, rpctypes.ErrGRPCFutureRev},
		"range, no key":   {func() error { _, err := kv.Range(ctx, &pb.RangeRequest{}); return err }, rpctypes.ErrGRPCEmptyKey},
		"sort order 3":    {func() error { _, err := kv.Range(ctx, &pb.RangeRequest{Key: k, SortOrder: 3}); return err }, rpctypes.ErrGRPCInvalidSortOption},
		"sort target 256": {func() error { _, err := kv.Range(ctx, &pb.RangeRequest{Key: k, SortTarget: 256}); return err }, rpctypes.ErrGRPCInvalidSortOption},
		"sort order -1":   {func() error { _, err := kv.Range(ctx, &pb.RangeRequest{Key: k, SortOrder: -1}); return err }, rpctypes.ErrGRPCInvalidSortOption},
		"delete, no key":  {func() error { _, err := kv.DeleteRange(ctx, &pb.DeleteRangeRequest{}); return err }, rpctypes.ErrGRPCEmptyKey},
		"no such lease":   {func() error { _, err := kv.Put(ctx, &pb.PutRequest{Key: k, Lease: 7}); return err }, rpctypes.ErrGRPCLeaseNotFound},
		"value to ignore": {func() error { _, err := kv.Put(ctx, &pb.PutRequest{Key: k, Value: k, IgnoreValue: true}); return err }, rpctypes.ErrGRPCValueProvided},
		"lease to ignore": {func() error { _, err := kv.Put(ctx, &pb.PutRequest{Key: k, Lease: 7, IgnoreLease: true}); return err }, rpctypes.ErrGRPCLeaseProvided},
		"nothing to keep": {func() error { _, err := kv.Put(ctx, &pb.PutRequest{Key: []byte("n"), IgnoreValue: true}); return err }, rpctypes.ErrGRPCKeyNotFound},
		"empty operation": {func() error { _, err := kv.Txn(ctx, &pb.TxnRequest{Success: []*pb.RequestOp{{}}}); return err }, rpctypes.ErrGRPCKeyNotFound},
		"compare, no key": {func() error { _, err := kv.Txn(ctx, &pb.TxnRequest{Compare: []*pb.Compare{{}}}); return err }, rpctypes.ErrGRPCEmptyKey},
		"compact again":   {func() error { _, err := kv.Compact(ctx, &pb.CompactionRequest{Revision: 5}); return err }, rpctypes.ErrGRPCCompacted},
		"compact too far": {func() error { _, err := kv.Compact(ctx, &pb.CompactionRequest{Revision: 12}); return err }, rpctypes.ErrGRPCFutureRev},
		"txn at compacted": {func() error {
			_, err := kv.Txn(ctx, &pb.TxnRequest{Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestRange{RequestRange: &pb.RangeRequest{Key: k, Revision: 4}}}}})
			return err
		}, rpctypes.ErrGRPCCompacted},
	} {
		want, got := status.Convert(tc.want), status.Convert(tc.do())
		if got.Code() != want.Code() || got.Message() != want.Message() {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
	if resp := get(t, kv, "k"); resp.Header.Revision != 11 {
		t.Errorf("revision %d, want 11", resp.Header.Revision)
	}
	if resp, err := kv.Range(ctx, &pb.RangeRequest{Key: k, Revision: 5}); err != nil || string(resp.Kvs[0].Value) != "3" || resp.Header.Revision != 11 {
		t.Errorf("range at the compacted revision: %v, %v", resp, err)
	}
	stream, err := kv.RangeStream(ctx, &pb.RangeRequest{Key: k})
	if err == nil {
		_, err = stream.Recv()
	}
	if status.Code(err) != codes.Unimplemented || !strings.Contains(err.Error(), "RangeStream") {
		t.Errorf("RangeStream: %v", err)
	}
}

// A server that is cut off answers from its own state whoever asks for that, and
// nobody else.
func TestOnlySerializableReadsWithoutLeader(t *testing.T) {
	c := startCluster(t, 3, options{})
	s := c.follower(t)
	put(t, s.kv(), "k", "v")
	for _, other := range c.servers {
		if other != s {
			other.kill()
		}
	}
	eventually(t, "no leader", func() bool { _, ok := s.store.LeaderID(); return !ok })
	ctx := testContext(t)
	stale := []*pb.TxnRequest{
		{Success: []*pb.RequestOp{rangeUnion("k", true)}},
		{Compare: []*pb.Compare{{Key: []byte("k"), Target: pb.Compare_VERSION, TargetUnion: &pb.Compare_Version{Version: 1}}}, Success: []*pb.RequestOp{rangeUnion("k", true)}},
	}
	fresh := []*pb.TxnRequest{
		{},
		{Compare: []*pb.Compare{{Key: []byte("k")}}},
		{Success: []*pb.RequestOp{rangeUnion("k", true), rangeUnion("k", false)}},
		{Success: []*pb.RequestOp{rangeUnion("k", true)}, Failure: []*pb.RequestOp{rangeUnion("k", false)}},
	}
	if resp, err := s.kv().Range(ctx, &pb.RangeRequest{Key: []byte("k"), Serializable: true}); err != nil || len(resp.Kvs) != 1 {
		t.Errorf("serializable range: %v, %v", resp, err)
	}
	for i, r := range stale {
		if resp, err := s.kv().Txn(ctx, r); err != nil || !bytes.Equal(resp.Responses[0].GetResponseRange().Kvs[0].Value, []byte("v")) {
			t.Errorf("serializable transaction %d: %v, %v", i, resp, err)
		}
	}
	for i, r := range fresh {
		short, stop := context.WithTimeout(ctx, electionTimeout/2)
		defer stop()
		if resp, err := s.kv().Txn(short, r); status.Code(err) != codes.DeadlineExceeded {
			t.Errorf("transaction %d: %v, %v, want to wait for a leader", i, resp, err)
		}
	}
}
