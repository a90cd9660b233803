package difftest

import (
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// doctors each change one thing in answers, where there is such a thing, and
// report whether they did.
var doctors = map[string]func(method string, m proto.Message) bool{
	"header revision": func(_ string, m proto.Message) bool {
		h := m.(interface{ GetHeader() *pb.ResponseHeader }).GetHeader()
		h.Revision++
		return true
	},
	"cluster id changes": func(_ string, m proto.Message) bool {
		m.(interface{ GetHeader() *pb.ResponseHeader }).GetHeader().ClusterId++
		return true
	},
	"last pair missing": onRange(func(r *pb.RangeResponse) bool {
		if len(r.Kvs) == 0 {
			return false
		}
		r.Kvs = r.Kvs[:len(r.Kvs)-1]
		return true
	}),
	"two pairs exchanged": onRange(func(r *pb.RangeResponse) bool {
		if len(r.Kvs) < 2 {
			return false
		}
		r.Kvs[0], r.Kvs[1] = r.Kvs[1], r.Kvs[0]
		return true
	}),
	"version of a pair": onRange(func(r *pb.RangeResponse) bool { return len(r.Kvs) > 0 && add(&r.Kvs[len(r.Kvs)/2].Version) }),
	"lease of a pair":   onRange(func(r *pb.RangeResponse) bool { return len(r.Kvs) > 0 && add(&r.Kvs[0].Lease) }),
	"count":             onRange(func(r *pb.RangeResponse) bool { return add(&r.Count) }),
	"more":              onRange(func(r *pb.RangeResponse) bool { r.More = !r.More; return true }),
	"previous pair of a put": on(func(r *pb.PutResponse) bool {
		had := r.PrevKv != nil
		r.PrevKv = nil
		return had
	}),
	"deleted":      on(func(r *pb.DeleteRangeResponse) bool { return add(&r.Deleted) }),
	"other branch": on(func(r *pb.TxnResponse) bool { r.Succeeded = !r.Succeeded; return true }),
	"revision inside a nested txn": on(func(r *pb.TxnResponse) bool {
		for _, op := range r.Responses {
			for _, in := range op.GetResponseTxn().GetResponses() {
				if g := in.GetResponseRange(); g != nil {
					return add(&g.Header.Revision)
				}
			}
		}
		return false
	}),
	"granted TTL": on(func(r *pb.LeaseGrantResponse) bool { return add(&r.TTL) }),
	"remaining TTL": on(func(r *pb.LeaseTimeToLiveResponse) bool {
		living := r.TTL > 0
		if living {
			r.TTL += 10
		}
		return living
	}),
	"key of a lease": on(func(r *pb.LeaseTimeToLiveResponse) bool { r.Keys = append(r.Keys, []byte("x")); return true }),
	"lease in list":  on(func(r *pb.LeaseLeasesResponse) bool { r.Leases = append(r.Leases, &pb.LeaseStatus{ID: 1}); return true }),
	"renewed TTL":    on(func(r *pb.LeaseKeepAliveResponse) bool { return r.TTL > 0 && add(&r.TTL) }),
	"compacted":      on(func(r *pb.HashKVResponse) bool { return add(&r.CompactRevision) }),
	"event lost": onEvents(func(r *pb.WatchResponse) bool {
		r.Events = r.Events[1:]
		return true
	}),
	"event twice": onEvents(func(r *pb.WatchResponse) bool {
		r.Events = append(r.Events, r.Events[len(r.Events)-1])
		return true
	}),
	"events exchanged": onEvents(func(r *pb.WatchResponse) bool {
		slices.Reverse(r.Events)
		return len(r.Events) > 1
	}),
	"previous pair of an event": onEvents(func(r *pb.WatchResponse) bool {
		had := r.Events[0].PrevKv != nil
		r.Events[0].PrevKv = nil
		return had
	}),
	"kind of an event": onEvents(func(r *pb.WatchResponse) bool {
		r.Events[0].Type = mvccpb.Event_DELETE - r.Events[0].Type
		return true
	}),
	"message below its events": onEvents(func(r *pb.WatchResponse) bool { r.Header.Revision = r.Events[0].Kv.ModRevision - 1; return true }),
	"mark ahead":               on(func(r *pb.WatchResponse) bool { return r.WatchId == -1 && add10(&r.Header.Revision) }),
	"compact revision of a watch": on(func(r *pb.WatchResponse) bool {
		return r.CompactRevision > 0 && add(&r.CompactRevision)
	}),
	"id of a watch": on(func(r *pb.WatchResponse) bool { return r.Created && add(&r.WatchId) }),
}

// badErrors change errors.
var badErrors = map[string]func(*status.Status) error{
	"error text": func(s *status.Status) error { return status.Error(s.Code(), s.Message()+" ") },
	"error code": func(s *status.Status) error { return status.Error(s.Code()+1, s.Message()) },
	"no error":   func(*status.Status) error { return nil },
}

func add(n *int64) bool   { *n++; return true }
func add10(n *int64) bool { *n += 10; return true }

func on[M proto.Message](change func(M) bool) func(string, proto.Message) bool {
	return func(_ string, m proto.Message) bool {
		r, ok := m.(M)
		return ok && change(r)
	}
}

func onRange(change func(*pb.RangeResponse) bool) func(string, proto.Message) bool { return on(change) }

func onEvents(change func(*pb.WatchResponse) bool) func(string, proto.Message) bool {
	return on(func(r *pb.WatchResponse) bool { return len(r.Events) > 0 && change(r) })
}

// TestDoctoredAnswersAreNoticed changes one answer of one of two etcds, once:
// the comparison must say so before it has gone on for long.
func TestDoctoredAnswersAreNoticed(t *testing.T) {
	a, b := etcdSide(t, "etcd", 1), etcdSide(t, "doctored", 1)
	r := NewRunner(a, b, *seedFlag+1000)
	defer r.Close()
	if err := r.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := r.Run(t.Context(), 1000); err != nil {
		t.Fatal(err)
	}
	names := make([]string, 0, len(doctors)+len(badErrors))
	for name := range doctors {
		names = append(names, name)
	}
	for name := range badErrors {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) { doctored(t, r, b, name) })
	}
}

// doctored lets one doctor change one answer of b. The two stores stay alike:
// both have carried out whatever was sent.
func doctored(t *testing.T, r *Runner, b *Side, name string) {
	var did atomic.Bool
	var at string
	b.doctor = func(method string, m proto.Message, err error) error {
		if did.Load() {
			return err
		}
		done, answer := false, err
		if change := doctors[name]; change != nil {
			done = err == nil && change(method, m)
		} else if err != nil {
			done, answer = true, badErrors[name](status.Convert(err))
		}
		if done && did.CompareAndSwap(false, true) {
			at = method
		}
		return answer
	}
	var err error
	for range 200 {
		if err = r.Run(t.Context(), 200); err != nil || did.Load() {
			break
		}
	}
	if !did.Load() {
		t.Fatalf("there was no such answer: %v", err)
	}
	if err == nil {
		err = r.Run(t.Context(), 400) // a watch is compared a round later
	}
	// New streams and checks: those of before have seen what was wrong.
	r.Close()
	b.doctor = nil
	b.check.cluster, b.check.term = 0, 0
	if err == nil {
		t.Errorf("a changed answer to %s was not noticed", at)
	}
	if rerr := r.resync(t.Context()); rerr != nil {
		t.Fatal(rerr)
	}
}
