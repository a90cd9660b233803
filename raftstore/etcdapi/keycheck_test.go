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

// Prefixes and bounds of these tests are made of letters: the ends of the order and
// two neighbours. Keys have the letters after these, too.
const (
	letters    = "\x00ab\xff"
	keyLetters = "\x00\x01abc\xff"
)

// textsOf are all texts of up to so many letters, in order.
func textsOf(letters string, most int) (texts []string) {
	last := []string{""}
	for range most {
		var next []string
		for _, k := range last {
			for i := range len(letters) {
				next = append(next, k+letters[i:i+1])
			}
		}
		texts, last = append(texts, next...), next
	}
	slices.Sort(texts)
	return texts
}

// keysOfLetters are the keys that there are. Prefixes have at most two letters and
// bounds at most three: if a range leaves a prefix at all, it does so at one of them.
var keysOfLetters = textsOf(keyLetters, 3)

func drawText(most int) *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		return string(rapid.SliceOfN(rapid.SampledFrom([]byte(letters)), 0, most).Draw(t, "text"))
	})
}

// drawKey likes keys that the scope has, and drawEnd ends that are special.
func drawKey(t *rapid.T, s access.Scope) []byte {
	if len(s.Prefixes) == 0 || rapid.IntRange(0, 3).Draw(t, "anywhere") == 0 {
		return []byte(drawText(3).Draw(t, "key"))
	}
	return []byte(rapid.SampledFrom(s.Prefixes).Draw(t, "prefix") + drawText(1).Draw(t, "rest"))
}

func drawEnd(t *rapid.T, s access.Scope) []byte {
	switch kind := rapid.IntRange(0, 5).Draw(t, "end"); {
	case kind <= 1:
		return nil
	case kind == 2:
		return []byte{0}
	case kind == 3 || len(s.Prefixes) == 0:
		return []byte(drawText(3).Draw(t, "end"))
	}
	return access.After([]byte(rapid.SampledFrom(s.Prefixes).Draw(t, "prefix")))
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

// under is the oracle: a prefix has the beginning of the range and all keys in it.
func under(prefix, key string, in []string) bool {
	return strings.HasPrefix(key, prefix) && !slices.ContainsFunc(in, func(k string) bool { return !strings.HasPrefix(k, prefix) })
}

// owns is under of any prefix of a scope.
func owns(s access.Scope, key, end []byte) bool {
	in := keysIn(string(key), string(end))
	return slices.ContainsFunc(s.Prefixes, func(p string) bool { return under(p, string(key), in) })
}

func someone(role access.Role, s access.Scope) access.Identity {
	return access.Identity{Source: access.Bearer, Name: "x", Role: role, Scope: s, Credential: "xxxxxxxxxxxx"}
}

func allowed(a *API, id access.Identity, method string, req proto.Message) bool {
	return a.Authorize(context.Background(), id, method, req) == nil
}

// Every range × every prefix: what is decided is what the oracle decides that lists
// the keys, for each request that has a range; and a store that has all keys finds
// those that the oracle lists.
func TestRangesAreCheckedAsTheyAreExecuted(t *testing.T) {
	a, full := authorizing(), storeOf(t, keysOfLetters)
	texts := append(textsOf(letters, 2), "")
	for _, key := range texts {
		for _, end := range texts {
			k, e, in := []byte(key), []byte(end), keysIn(key, end)
			for _, p := range texts {
				id, want := someone(access.Worker, access.Scope{Prefixes: []string{p}}), under(p, key, in)
				for _, req := range [...]proto.Message{
					&pb.RangeRequest{Key: k, RangeEnd: e}, &pb.DeleteRangeRequest{Key: k, RangeEnd: e, PrevKv: true},
					&pb.TxnRequest{Compare: []*pb.Compare{{Key: k, RangeEnd: e}}},
				} {
					if got := allowed(a, id, methodOf(req), req); got != want {
						t.Fatalf("prefix %q: %T from %q to %q is allowed: %v, want %v", p, req, key, end, got, want)
					}
				}
			}
			if key == "" {
				continue // the store takes none
			}
			r, err := full.Range(&mvcc.RangeOp{Key: k, End: e, KeysOnly: true})
			if err != nil {
				t.Fatal(err)
			}
			if found := foundIn(r.KVs); !slices.Equal(found, in) {
				t.Fatalf("from %q to %q the store finds %q, the oracle %q", key, end, found, in)
			}
		}
	}
}

// A watch is decided about like a range, and is told of all keys in it and no other,
// live and from history.
func TestWatchesAreCheckedAsTheyAreExecuted(t *testing.T) {
	full := storeOf(t, keysOfLetters)
	texts := append(textsOf(letters, 2), "")
	for _, key := range texts {
		for _, end := range texts {
			sp, ok := specOf(&pb.WatchCreateRequest{Key: []byte(key), RangeEnd: []byte(end)})
			if !ok {
				continue // it is refused as empty
			}
			first := max(key, "\x00") // no key stands for the first
			in := keysIn(first, end)
			for _, p := range texts {
				want := under(p, first, in)
				if got := checkWatched(someone(access.Reader, access.Scope{Prefixes: []string{p}}), &sp) == nil; got != want {
					t.Fatalf("prefix %q: a watch from %q to %q is allowed: %v, want %v", p, key, end, got, want)
				}
			}
			from, to := sp.bounds()
			events, _, err := full.Events(1, full.Revision(), from, to, 0, nil)
			if err != nil {
				t.Fatal(err)
			}
			var told, heard []string
			for i := range events {
				told = append(told, string(events[i].KV.Key))
			}
			live := newGroups()
			live.add(&watcher{spec: sp})
			for _, k := range keysOfLetters {
				live.at([]byte(k), func(*group) { heard = append(heard, k) })
			}
			if !slices.Equal(told, in) || !slices.Equal(heard, in) {
				t.Fatalf("a watch from %q to %q is told of %q and hears of %q, the oracle says %q", key, end, told, heard, in)
			}
		}
	}
}

func foundIn(kvs []*mvcc.KeyValue) (keys []string) {
	for _, kv := range kvs {
		keys = append(keys, string(kv.Key))
	}
	return keys
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

func drawTxn(t *rapid.T, s access.Scope, depth int) *pb.TxnRequest {
	r := &pb.TxnRequest{}
	for range rapid.IntRange(0, 2).Draw(t, "compares") {
		r.Compare = append(r.Compare, &pb.Compare{Key: drawKey(t, s), RangeEnd: drawEnd(t, s)})
	}
	r.Success, r.Failure = drawOps(t, s, depth), drawOps(t, s, depth)
	return r
}

func drawOps(t *rapid.T, s access.Scope, depth int) (ops []*pb.RequestOp) {
	for range rapid.IntRange(0, 2).Draw(t, "ops") {
		op := &pb.RequestOp{}
		key, end := drawKey(t, s), drawEnd(t, s)
		switch kind := rapid.IntRange(0, 9).Draw(t, "kind"); {
		case kind == 0: // none
		case kind <= 3:
			op.Request = &pb.RequestOp_RequestRange{RequestRange: &pb.RangeRequest{Key: key, RangeEnd: end}}
		case kind <= 5:
			op.Request = &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: key}}
		case kind <= 6:
			op.Request = &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: &pb.DeleteRangeRequest{Key: key, RangeEnd: end}}
		case depth > 0:
			op.Request = &pb.RequestOp_RequestTxn{RequestTxn: drawTxn(t, s, depth-1)}
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
	tree := func(t *rapid.T) {
		s := drawScope(t)
		if rapid.Bool().Draw(t, "wide") { // or else nearly everything is refused
			s.Prefixes = append(s.Prefixes, rapid.SampledFrom([]string{"", "a", "b", "\xff"}).Draw(t, "prefix"))
		}
		role := rapid.SampledFrom([]access.Role{access.Reader, access.Worker, access.Operator}).Draw(t, "role")
		r := drawTxn(t, s, 4)
		want := true
		everyMessage(r.ProtoReflect(), func(m proto.Message) {
			switch m := m.(type) {
			case *pb.Compare:
				want = want && owns(s, m.Key, m.RangeEnd)
			case *pb.RangeRequest:
				want = want && owns(s, m.Key, m.RangeEnd)
			case *pb.PutRequest:
				want = want && role != access.Reader && owns(s, m.Key, nil)
			case *pb.DeleteRangeRequest:
				want = want && role != access.Reader && owns(s, m.Key, m.RangeEnd)
			}
		})
		if got := allowed(a, someone(role, s), pb.KV_Txn_FullMethodName, r); got != want {
			t.Fatalf("%v with %q is allowed: %v, want %v: %v", role, s.Prefixes, got, want, r)
		}
	}
	for range 20 { // of a hundred trees each
		rapid.Check(t, tree)
	}
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
