package etcdapi

import (
	"context"
	"slices"
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"pgregory.net/rapid"

	"github.com/leasehold-dev/leasehold/raftstore/access"
	"github.com/leasehold-dev/leasehold/raftstore/etcdapi/v3electionpb"
	"github.com/leasehold-dev/leasehold/raftstore/etcdapi/v3lockpb"
	"github.com/leasehold-dev/leasehold/raftstore/mvcc"
)

// letters are those of the keys of these tests: the ends of the order and two
// neighbours.
var letters = []byte{0x00, 'a', 'b', 0xff}

// keysOfLetters are all keys of up to four letters. Prefixes have at most two and
// bounds at most three: if a range leaves a prefix at all, it does so at one of them.
var keysOfLetters = func() (keys []string) {
	last := []string{""}
	for range 4 {
		var next []string
		for _, k := range last {
			for _, c := range letters {
				next = append(next, k+string(c))
			}
		}
		keys, last = append(keys, next...), next
	}
	slices.Sort(keys)
	return keys
}()

func drawText(most int) *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		return string(rapid.SliceOfN(rapid.SampledFrom(letters), 0, most).Draw(t, "text"))
	})
}

func drawScope(t *rapid.T) access.Scope {
	return access.Scope{Prefixes: rapid.SliceOfN(drawText(2), 0, 3).Draw(t, "prefixes")}
}

// keysIn are the keys of a range, found by looking at every one.
func keysIn(key, end string) (keys []string) {
	for _, k := range keysOfLetters {
		if in := k == key && end == "" || end == "\x00" && k >= key || end != "" && end != "\x00" && k >= key && k < end; in {
			keys = append(keys, k)
		}
	}
	return keys
}

// owns is the oracle: one prefix has the beginning of the range and all keys in it.
func owns(s access.Scope, key, end string) bool {
	return slices.ContainsFunc(s.Prefixes, func(p string) bool {
		return strings.HasPrefix(key, p) &&
			!slices.ContainsFunc(keysIn(key, end), func(k string) bool { return !strings.HasPrefix(k, p) })
	})
}

func someone(role access.Role, s access.Scope) access.Identity {
	return access.Identity{Source: access.Bearer, Name: "x", Role: role, Scope: s, Credential: "xxxxxxxxxxxx"}
}

func allowed(a *API, id access.Identity, method string, req proto.Message) bool {
	return a.Authorize(context.Background(), id, method, req) == nil
}

// Ranges × scopes: what is decided is what the oracle decides that lists the keys,
// for each request that has a range; and a store that has all keys tells, or
// changes, none outside of the scope.
func TestRangesAreCheckedAsTheyAreExecuted(t *testing.T) {
	a, full := authorizing(), storeOf(t, keysOfLetters)
	rapid.Check(t, func(t *rapid.T) {
		s := drawScope(t)
		key, end := drawText(3).Draw(t, "key"), drawText(3).Draw(t, "end")
		k, e := []byte(key), []byte(end)
		want := owns(s, key, end)
		for _, req := range []proto.Message{
			&pb.RangeRequest{Key: k, RangeEnd: e}, &pb.DeleteRangeRequest{Key: k, RangeEnd: e, PrevKv: true},
			&pb.TxnRequest{Compare: []*pb.Compare{{Key: k, RangeEnd: e}}},
		} {
			if got := allowed(a, someone(access.Worker, s), methodOf(req), req); got != want {
				t.Fatalf("scope %q: %v is allowed: %v, want %v", s.Prefixes, req, got, want)
			}
		}
		if !want || key == "" {
			return
		}
		r, err := full.Range(&mvcc.RangeOp{Key: k, End: e})
		if err != nil {
			t.Fatal(err)
		}
		if len(r.KVs) != len(keysIn(key, end)) {
			t.Fatalf("the store finds %d keys from %q to %q, the oracle %d", len(r.KVs), key, end, len(keysIn(key, end)))
		}
		for _, kv := range r.KVs {
			if !s.Key(kv.Key) {
				t.Fatalf("scope %q is told %q", s.Prefixes, kv.Key)
			}
		}
	})
}

// A watch of a range is told of nothing outside of the scope, live or from history.
func TestWatchesAreCheckedAsTheyAreExecuted(t *testing.T) {
	full := storeOf(t, keysOfLetters)
	rapid.Check(t, func(t *rapid.T) {
		s := drawScope(t)
		r := &pb.WatchCreateRequest{Key: []byte(drawText(3).Draw(t, "key")), RangeEnd: []byte(drawText(3).Draw(t, "end"))}
		sp, ok := specOf(r)
		if !ok {
			return
		}
		key := string(r.Key)
		if key == "" {
			key = "\x00"
		}
		want := owns(s, key, string(r.RangeEnd))
		if got := checkWatched(someone(access.Reader, s), &sp) == nil; got != want {
			t.Fatalf("scope %q: a watch from %q to %q is allowed: %v, want %v", s.Prefixes, r.Key, r.RangeEnd, got, want)
		}
		if !want {
			return
		}
		var told []string
		from, to := sp.bounds()
		events, _, err := full.Events(1, full.Revision(), from, to, 0, nil)
		if err != nil {
			t.Fatal(err)
		}
		for i := range events {
			told = append(told, string(events[i].KV.Key))
		}
		live := newGroups()
		live.add(&watcher{spec: sp})
		for _, k := range keysOfLetters {
			live.at([]byte(k), func(*group) { told = append(told, k) })
		}
		if len(told) != 2*len(keysIn(key, string(r.RangeEnd))) {
			t.Fatalf("a watch from %q to %q is told of %d keys, the oracle knows %d, twice", r.Key, r.RangeEnd, len(told), len(keysIn(key, string(r.RangeEnd))))
		}
		for _, k := range told {
			if !s.Key([]byte(k)) {
				t.Fatalf("scope %q is told of %q", s.Prefixes, k)
			}
		}
	})
}

// storeOf has each key once.
func storeOf(t *testing.T, keys []string) *mvcc.Store {
	t.Helper()
	s := mvcc.New()
	for _, k := range keys {
		if _, err := s.Txn(&mvcc.Txn{Success: []mvcc.Op{{Put: &mvcc.PutOp{Key: []byte(k), Value: []byte(k)}}}}, nil, 0); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func methodOf(req proto.Message) string {
	switch req.(type) {
	case *pb.RangeRequest:
		return pb.KV_Range_FullMethodName
	case *pb.PutRequest:
		return pb.KV_Put_FullMethodName
	case *pb.DeleteRangeRequest:
		return pb.KV_DeleteRange_FullMethodName
	}
	return pb.KV_Txn_FullMethodName
}

func drawTxn(t *rapid.T, depth int) *pb.TxnRequest {
	r := &pb.TxnRequest{}
	for range rapid.IntRange(0, 2).Draw(t, "compares") {
		r.Compare = append(r.Compare, &pb.Compare{Key: []byte(drawText(3).Draw(t, "key")), RangeEnd: []byte(drawText(2).Draw(t, "end"))})
	}
	r.Success, r.Failure = drawOps(t, depth), drawOps(t, depth)
	return r
}

func drawOps(t *rapid.T, depth int) (ops []*pb.RequestOp) {
	for range rapid.IntRange(0, 2).Draw(t, "ops") {
		op := &pb.RequestOp{}
		key, end := []byte(drawText(3).Draw(t, "key")), []byte(drawText(2).Draw(t, "end"))
		switch kind := rapid.IntRange(0, 9).Draw(t, "kind"); {
		case kind == 0: // none
		case kind <= 3:
			op.Request = &pb.RequestOp_RequestRange{RequestRange: &pb.RangeRequest{Key: key, RangeEnd: end}}
		case kind <= 5:
			op.Request = &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: key}}
		case kind <= 6:
			op.Request = &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: &pb.DeleteRangeRequest{Key: key, RangeEnd: end}}
		case depth > 0:
			op.Request = &pb.RequestOp_RequestTxn{RequestTxn: drawTxn(t, depth-1)}
		}
		ops = append(ops, op)
	}
	return ops
}

// everyMessage yields a message and all that are inside of it, whatever their fields
// are called.
func everyMessage(m protoreflect.Message, yield func(proto.Message)) {
	yield(m.Interface())
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.IsList() && f.Message() != nil:
			for i := range v.List().Len() {
				everyMessage(v.List().Get(i).Message(), yield)
			}
		case f.Message() != nil:
			everyMessage(v.Message(), yield)
		}
		return true
	})
}

// Trees of transactions: allowed is exactly what has nothing forbidden anywhere in
// it, nested in whatever way.
func TestTransactionsAreCheckedAtEveryDepth(t *testing.T) {
	a := authorizing()
	rapid.Check(t, func(t *rapid.T) {
		s := drawScope(t)
		if rapid.Bool().Draw(t, "wide") { // or else nearly everything is refused
			s.Prefixes = append(s.Prefixes, rapid.SampledFrom([]string{"", "a", "b", "\xff"}).Draw(t, "prefix"))
		}
		role := rapid.SampledFrom([]access.Role{access.Reader, access.Worker, access.Operator}).Draw(t, "role")
		r := drawTxn(t, 4)
		want := true
		everyMessage(r.ProtoReflect(), func(m proto.Message) {
			switch m := m.(type) {
			case *pb.Compare:
				want = want && owns(s, string(m.Key), string(m.RangeEnd))
			case *pb.RangeRequest:
				want = want && owns(s, string(m.Key), string(m.RangeEnd))
			case *pb.PutRequest:
				want = want && role != access.Reader && owns(s, string(m.Key), "")
			case *pb.DeleteRangeRequest:
				want = want && role != access.Reader && owns(s, string(m.Key), string(m.RangeEnd))
			}
		})
		if got := allowed(a, someone(role, s), pb.KV_Txn_FullMethodName, r); got != want {
			t.Fatalf("%v with %q is allowed: %v, want %v: %v", role, s.Prefixes, got, want, r)
		}
	})
}

// nest puts an operation so many transactions deep, each in the branch that is not
// taken.
func nest(op *pb.RequestOp, depth int) *pb.TxnRequest {
	r := &pb.TxnRequest{Failure: []*pb.RequestOp{op}}
	for range depth {
		r = &pb.TxnRequest{Failure: []*pb.RequestOp{{Request: &pb.RequestOp_RequestTxn{RequestTxn: r}}}}
	}
	return r
}

// As deep as the store would go, the check goes; deeper, neither does.
func TestDepthOfTheCheckIsTheStores(t *testing.T) {
	a, id := authorizing(), callers["a"]
	for _, depth := range []int{0, 1, 2, 64, mvcc.MaxOps - 1, mvcc.MaxOps, mvcc.MaxOps + 1, 5000} {
		mine, foreign := nest(putUnion("/a/k", "v"), depth), nest(putUnion("/b/k", "v"), depth)
		txn := txnOf(mine)
		wanted := txn.Check() == nil
		if got := allowed(a, id, pb.KV_Txn_FullMethodName, mine); wanted && !got || got && depth > mvcc.MaxOps {
			t.Errorf("%d deep: a's own put is allowed: %v; the store would take it: %v", depth, got, wanted)
		}
		if allowed(a, id, pb.KV_Txn_FullMethodName, foreign) {
			t.Errorf("%d deep: b's put is allowed", depth)
		}
	}
}

// Locks and elections: the name is that of a queue, whose keys begin with it and a
// slash.
func TestQueuesAreCheckedByTheirKeys(t *testing.T) {
	a := authorizing()
	id := someone(access.Worker, access.Scope{Prefixes: []string{"/a/", "/q/"}})
	for name, want := range map[string]bool{"/a/": true, "/a/x": true, "/q": true, "/a": true, "": false, "/": false, "/b": false, "/ab": false, "/qq": false} {
		leader := &v3electionpb.LeaderKey{Name: []byte("/a/x"), Key: []byte(name + "/7")}
		for method, req := range map[string]proto.Message{
			v3lockpb.Lock_Lock_FullMethodName:             &v3lockpb.LockRequest{Name: []byte(name)},
			v3lockpb.Lock_Unlock_FullMethodName:           &v3lockpb.UnlockRequest{Key: []byte(name + "/7")},
			v3electionpb.Election_Campaign_FullMethodName: &v3electionpb.CampaignRequest{Name: []byte(name)},
			v3electionpb.Election_Leader_FullMethodName:   &v3electionpb.LeaderRequest{Name: []byte(name)},
			v3electionpb.Election_Observe_FullMethodName:  &v3electionpb.LeaderRequest{Name: []byte(name)},
			v3electionpb.Election_Proclaim_FullMethodName: &v3electionpb.ProclaimRequest{Leader: leader},
			v3electionpb.Election_Resign_FullMethodName:   &v3electionpb.ResignRequest{Leader: leader},
		} {
			if got := allowed(a, id, method, req); got != want {
				t.Errorf("%s of %q is allowed: %v, want %v", method, name, got, want)
			}
		}
	}
}

func FuzzAuthorizeTxn(f *testing.F) {
	for _, r := range []*pb.TxnRequest{{}, nest(putUnion("/a/k", "v"), 3), nest(rangeUnion("/b/k", true), 200)} {
		b, err := proto.Marshal(r)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	a := authorizing()
	f.Fuzz(func(t *testing.T, b []byte) {
		var r pb.TxnRequest
		if proto.Unmarshal(b, &r) != nil {
			return
		}
		ok := allowed(a, callers["a"], pb.KV_Txn_FullMethodName, &r)
		txn := txnOf(&r)
		if !ok || txn.Check() != nil {
			return
		}
		everyMessage(r.ProtoReflect(), func(m proto.Message) {
			if keyed, is := m.(interface{ GetKey() []byte }); is && !callers["a"].Scope.Key(keyed.GetKey()) {
				t.Fatalf("%v was let through", m)
			}
		})
	})
}
