package etcdapi

import (
	"context"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/leasehold-dev/leasehold/raftstore/access"
)

// FuzzWatchRequests sends any sequence of requests on one stream, with changes of
// keys in between: nothing panics, and every watch that is created is told every
// event of its keys in order, once, or cancelled.
func FuzzWatchRequests(f *testing.F) {
	var seed []byte
	for _, r := range []*pb.WatchRequest{
		{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: &pb.WatchCreateRequest{Key: []byte("k"), PrevKv: true}}},
		{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: &pb.WatchCreateRequest{
			RangeEnd: []byte{0}, StartRevision: 2, Fragment: true, WatchId: 9, Filters: []pb.WatchCreateRequest_FilterType{1, 7},
		}}},
		{RequestUnion: &pb.WatchRequest_ProgressRequest{ProgressRequest: &pb.WatchProgressRequest{}}},
		{RequestUnion: &pb.WatchRequest_CancelRequest{CancelRequest: &pb.WatchCancelRequest{WatchId: 9}}},
		{RequestUnion: &pb.WatchRequest_CreateRequest{}},
		{},
	} {
		b, err := proto.Marshal(r)
		if err != nil {
			f.Fatal(err)
		}
		seed = protowire.AppendBytes(seed, b)
	}
	f.Add(seed)
	f.Fuzz(func(t *testing.T, data []byte) {
		m := newKeyModel(t)
		h := newHub(m.view, testLimits())
		s := &testStream{watchStream: h.newStream(access.Anybody())}
		stories := map[int64]*watchStory{}
		for range 20 {
			b, size := protowire.ConsumeBytes(data)
			if size < 0 {
				break
			}
			data = data[size:]
			r := &pb.WatchRequest{}
			if proto.Unmarshal(b, r) != nil {
				continue
			}
			known := len(s.watchers)
			h.request(s.watchStream, r)
			if c := r.GetCreateRequest(); c != nil && len(s.watchers) > known {
				var id int64
				for _, it := range s.queue {
					if it.control.GetCreated() && !it.control.GetCanceled() {
						id = it.control.WatchId // the last one
					}
				}
				if stories[id] == nil {
					sp, _ := specOf(c)
					stories[id] = &watchStory{want: sp, start: c.StartRevision}
				}
			}
			m.txn(putOp("k", "v"), putOp("\x00", "v"))
			m.txn(delOp("k", ""))
			for h.step() {
			}
		}
		got := drain(t, s.watchStream)
		for id, story := range stories {
			if id == allWatchers {
				continue // no client asks for it
			}
			for _, r := range of(got, id) {
				if r.Canceled {
					break // and its id may be another's now
				}
				story.seen = append(story.seen, r)
			}
			if err := checkWatch(story, m.all(), 0); err != nil {
				t.Errorf("watch %d, %+v: %v", id, story.want, err)
			}
		}
		h.drop(s.watchStream)
		if h.live.count != 0 || len(h.live.bySpec) != 0 {
			t.Error("watchers are left of a stream that is gone")
		}
	})
}

// drain is the sender, as far as it gets without waiting.
func drain(t *testing.T, s *watchStream) (got []*pb.WatchResponse) {
	write := func(m *pb.WatchResponse) error {
		b, err := proto.Marshal(m)
		if err != nil {
			return err
		}
		decoded := &pb.WatchResponse{}
		got = append(got, decoded)
		return proto.Unmarshal(b, decoded)
	}
	var read chunk
	for {
		items, behind := s.take()
		if len(items) == 0 && behind == nil {
			return got
		}
		if err := s.sendAll(items, write); err != nil {
			t.Fatal(err)
		}
		if behind != nil {
			if err := s.catchUp(behind, &read, write); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// fuzzLease carries out requests of one kind: no panic, and a code that etcd's
// leases may answer.
func fuzzLease[Req any, PReq message[Req]](f *testing.F, seeds []PReq, do func(*lease, context.Context, PReq) error) {
	for _, s := range seeds {
		b, err := proto.Marshal(s)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	c := startCluster(f, 1, options{})
	l := &lease{API: c.servers[0].api}
	ctx := access.NewContext(context.Background(), access.Anybody())
	f.Fuzz(func(t *testing.T, b []byte) {
		r := PReq(new(Req))
		if proto.Unmarshal(b, r) != nil {
			return
		}
		switch code := status.Code(do(l, ctx, r)); code {
		case codes.OK, codes.OutOfRange, codes.NotFound, codes.FailedPrecondition, codes.ResourceExhausted:
		default:
			t.Fatalf("%v: %v", r, code)
		}
	})
}

func FuzzLeaseGrant(f *testing.F) {
	fuzzLease(f, []*pb.LeaseGrantRequest{{}, {TTL: 9_000_000_000, ID: 5}, {TTL: 9_000_000_001}, {TTL: -1, ID: -1}, {TTL: 1 << 62}},
		func(l *lease, ctx context.Context, r *pb.LeaseGrantRequest) error {
			_, err := l.LeaseGrant(ctx, r)
			return err
		})
}

func FuzzLeaseRevoke(f *testing.F) {
	fuzzLease(f, []*pb.LeaseRevokeRequest{{}, {ID: 5}, {ID: -1}},
		func(l *lease, ctx context.Context, r *pb.LeaseRevokeRequest) error {
			_, err := l.LeaseRevoke(ctx, r)
			return err
		})
}

func FuzzLeaseTimeToLive(f *testing.F) {
	fuzzLease(f, []*pb.LeaseTimeToLiveRequest{{}, {ID: 5, Keys: true}, {ID: -1}},
		func(l *lease, ctx context.Context, r *pb.LeaseTimeToLiveRequest) error {
			_, err := l.LeaseTimeToLive(ctx, r)
			return err
		})
}

func FuzzLeaseKeepAlive(f *testing.F) {
	fuzzLease(f, []*pb.LeaseKeepAliveRequest{{}, {ID: 5}, {ID: -1}},
		func(l *lease, ctx context.Context, r *pb.LeaseKeepAliveRequest) error {
			answers, err := l.renew(ctx, []int64{r.ID})
			if err == nil && answers[0].ID != r.ID {
				f.Errorf("lease %d is answered as %v", r.ID, answers[0])
			}
			return err
		})
}
