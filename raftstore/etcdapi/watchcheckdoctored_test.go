package etcdapi

import (
	"slices"
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/leasehold-dev/leasehold/raftstore/mvcc"
)

// A checker that finds nothing proves nothing: this gives it stories that are
// wrong in one way each.
func TestWatchCheckerNoticesWhatIsWrong(t *testing.T) {
	pair := func(key, value string, revision int64) *mvcc.KeyValue {
		return &mvcc.KeyValue{Key: []byte(key), Value: []byte(value), CreateRevision: 2, ModRevision: revision, Version: revision - 1}
	}
	happened := []mvcc.Event{
		{KV: pair("a", "1", 2)},
		{KV: pair("a", "2", 3), Prev: pair("a", "1", 2)},
		{KV: pair("b", "2", 3)},
		{Delete: true, KV: &mvcc.KeyValue{Key: []byte("a"), ModRevision: 4}, Prev: pair("a", "2", 3)},
		{KV: pair("a", "3", 5)},
	}
	event := func(i int, prev bool) *mvccpb.Event {
		e := &mvccpb.Event{Kv: keyValue(happened[i].KV)}
		if happened[i].Delete {
			e.Type = mvccpb.Event_DELETE
		}
		if prev {
			e.PrevKv = keyValue(happened[i].Prev)
		}
		return e
	}
	message := func(revision int64, events ...*mvccpb.Event) *pb.WatchResponse {
		return &pb.WatchResponse{Header: &pb.ResponseHeader{Revision: revision}, Events: events}
	}
	created := func(revision int64) *pb.WatchResponse {
		m := message(revision)
		m.Created = true
		return m
	}
	good := func() []*pb.WatchResponse {
		return []*pb.WatchResponse{
			created(3), message(2, event(0, true)), message(3, event(1, true), event(2, true)),
			created(4), message(5, event(3, true), event(4, true)),
		}
	}
	for _, test := range []struct {
		name   string
		doctor func(m []*pb.WatchResponse) []*pb.WatchResponse
		want   string
	}{
		{"nothing", func(m []*pb.WatchResponse) []*pb.WatchResponse { return m }, ""},
		{"created late", func(m []*pb.WatchResponse) []*pb.WatchResponse { m[0], m[1] = m[1], m[0]; return m }, "before the watch was created"},
		{"event missing", func(m []*pb.WatchResponse) []*pb.WatchResponse { return slices.Delete(m, 1, 2) }, "due is"},
		{"event twice", func(m []*pb.WatchResponse) []*pb.WatchResponse { return slices.Insert(m, 2, m[1]) }, "due is"},
		{"last missing", func(m []*pb.WatchResponse) []*pb.WatchResponse { m[4].Events = m[4].Events[:1]; return m }, "is due"},
		{"last message missing", func(m []*pb.WatchResponse) []*pb.WatchResponse { return m[:4] }, "never came"},
		{"order within a revision", func(m []*pb.WatchResponse) []*pb.WatchResponse { slices.Reverse(m[2].Events); return m }, "due is"},
		{"revision split", func(m []*pb.WatchResponse) []*pb.WatchResponse {
			return slices.Insert(m, 3, message(3, m[2].Events[1]))
		}, "due is"},
		{"revision in two messages", func(m []*pb.WatchResponse) []*pb.WatchResponse {
			two := message(3, m[2].Events[1])
			m[2].Events, m[2].Header.Revision = m[2].Events[:1], 3
			return slices.Insert(m, 3, two)
		}, "is due"},
		{"mark ahead", func(m []*pb.WatchResponse) []*pb.WatchResponse { return slices.Insert(m, 1, message(2)) }, "says that all up to 2"},
		{"header below", func(m []*pb.WatchResponse) []*pb.WatchResponse { m[1].Header.Revision = 1; return m }, "header has revision 1"},
		{"another value", func(m []*pb.WatchResponse) []*pb.WatchResponse { m[1].Events[0].Kv.Value = []byte("x"); return m }, "event has"},
		{"another previous pair", func(m []*pb.WatchResponse) []*pb.WatchResponse {
			m[2].Events[0].PrevKv = keyValue(happened[4].KV)
			return m
		}, "previous pair"},
		{"deletion with a value", func(m []*pb.WatchResponse) []*pb.WatchResponse {
			m[4].Events[0].Kv.Value = []byte("x")
			return m
		}, "deletion has more"},
		{"put told as deletion", func(m []*pb.WatchResponse) []*pb.WatchResponse {
			m[1].Events[0].Type = mvccpb.Event_DELETE
			return m
		}, "has type"},
		{"cancelled for nothing", func(m []*pb.WatchResponse) []*pb.WatchResponse {
			last := message(5)
			last.Canceled = true
			return append(m, last)
		}, "not as compacted"},
		{"compacted for nothing", func(m []*pb.WatchResponse) []*pb.WatchResponse {
			last := message(5)
			last.Canceled, last.CompactRevision = true, 5
			return append(m, last)
		}, "comes next"},
		{"after the end", func(m []*pb.WatchResponse) []*pb.WatchResponse {
			end := message(0)
			end.Canceled, end.CompactRevision = true, 4
			return slices.Insert(m, 2, end)
		}, "after the watch was cancelled"},
	} {
		t.Run(test.name, func(t *testing.T) {
			story := &watchStory{want: spec{key: "a", end: "c", ranged: true, prev: true}, start: 2, seen: test.doctor(good())}
			err := checkWatch(story, happened, 5)
			switch {
			case test.want == "" && err != nil:
				t.Errorf("a story in which nothing is wrong: %v", err)
			case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
				t.Errorf("got %v, want an error with %q", err, test.want)
			}
		})
	}
}
