package etcdapi

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

func mustPut(t testing.TB, c *clientv3.Client, key, value string) int64 {
	t.Helper()
	resp, err := c.Put(testContext(t), key, value)
	if err != nil {
		t.Fatal(err)
	}
	return resp.Header.Revision
}

// O-54: at the edge of what has been compacted, watches and reads are answered as
// etcd does, also to a client that comes again.
func TestO54EdgeOfCompaction(t *testing.T) {
	s := startCluster(t, 1, options{}).servers[0]
	c := etcdClient(t, s)
	var last int64
	for i := range 10 {
		last = mustPut(t, c, "k", fmt.Sprint(i))
	}
	if _, err := c.Compact(testContext(t), 5); err != nil {
		t.Fatal(err)
	}
	for range 2 { // again, as after a disconnect
		ctx, stop := context.WithCancel(testContext(t))
		m := <-c.Watch(ctx, "k", clientv3.WithRev(4))
		if !m.Canceled || m.CompactRevision != 5 || !errors.Is(m.Err(), rpctypes.ErrCompacted) {
			t.Errorf("watch from 4: %+v", m)
		}
		for _, start := range []int64{5, 6, last} {
			next := start
			for m := range c.Watch(ctx, "k", clientv3.WithRev(start)) {
				for _, e := range m.Events {
					if e.Kv.ModRevision != next {
						t.Fatalf("watch from %d: revision %d, want %d", start, e.Kv.ModRevision, next)
					}
					next++
				}
				if m.Err() != nil || next > last {
					if m.Err() != nil {
						t.Errorf("watch from %d: %v", start, m.Err())
					}
					break
				}
			}
		}
		stop()
	}
	for revision, want := range map[int64]error{4: rpctypes.ErrCompacted, 5: nil, 6: nil, 0: nil, last + 1000: rpctypes.ErrFutureRev} {
		if _, err := c.Get(testContext(t), "k", clientv3.WithRev(revision)); !errors.Is(err, want) {
			t.Errorf("read at %d: %v, want %v", revision, err, want)
		}
	}
}

// O-59: a start at 0 is "from now": of what ten clients write meanwhile, exactly
// what is above the revision of the answer that the watch is created arrives.
func TestO59StartRevisionZero(t *testing.T) {
	s := startCluster(t, 1, options{}).servers[0]
	var writers sync.WaitGroup
	for w := range 10 {
		writers.Go(func() {
			for range 20 {
				put(t, s.kv(), fmt.Sprintf("w%d", w), "v")
			}
		})
	}
	type opened struct {
		stream pb.Watch_WatchClient
		from   int64
	}
	var watches []opened
	for start := range 12 {
		stream, err := pb.NewWatchClient(s.conn).Watch(testContext(t))
		if err != nil {
			t.Fatal(err)
		}
		_ = stream.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: &pb.WatchCreateRequest{
			Key: []byte("w"), RangeEnd: []byte("x"), StartRevision: int64(start % 2),
		}}})
		m, err := stream.Recv()
		if err != nil || !m.Created || m.Canceled {
			t.Fatal(m, err)
		}
		from := m.Header.Revision + 1
		if start%2 == 1 {
			from = 2 // where the first was written
		}
		watches = append(watches, opened{stream, from})
	}
	writers.Wait()
	last := put(t, s.kv(), "w", "last").Header.Revision
	for _, w := range watches {
		next := w.from
		for next <= last {
			m, err := w.stream.Recv()
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range m.Events {
				if e.Kv.ModRevision != next {
					t.Fatalf("from %d: revision %d, want %d", w.from, e.Kv.ModRevision, next)
				}
				next++
			}
		}
	}
	stream, err := pb.NewWatchClient(s.conn).Watch(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	_ = stream.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: &pb.WatchCreateRequest{Key: []byte("w"), StartRevision: -1}}})
	if m, err := stream.Recv(); err != nil || !m.Created || !m.Canceled || m.WatchId != -1 || m.CancelReason != rpctypes.ErrCompacted.Error() {
		t.Errorf("from -1: %v, %v", m, err)
	}
}

// O-57: a watch that asked for a leader, through a server that is cut off from the
// others, ends with "no leader" within some elections; etcd's client then goes on at
// another server, without loss. One that did not ask stays.
func TestO57WatchThroughAnIsolatedServer(t *testing.T) {
	c := startCluster(t, 3, options{})
	cut := c.follower(t)
	other := slices.DeleteFunc(slices.Clone(c.servers), func(s *testServer) bool { return s == cut })
	rawly, stopRaw := context.WithCancel(metadata.AppendToOutgoingContext(testContext(t), "hasleader", "true"))
	raw, err := pb.NewWatchClient(cut.conn).Watch(rawly)
	if err != nil {
		t.Fatal(err)
	}
	calmly, stopCalm := context.WithCancel(testContext(t))
	calm, err := pb.NewWatchClient(cut.conn).Watch(calmly)
	if err != nil {
		t.Fatal(err)
	}
	for _, stream := range []pb.Watch_WatchClient{raw, calm} {
		_ = stream.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: &pb.WatchCreateRequest{Key: []byte("k")}}})
		if m, err := stream.Recv(); err != nil || !m.Created {
			t.Fatal(m, err)
		}
	}
	// The client is at the server that will be cut off, and learns of the others
	// then. Its channel is closed with "no leader", upon which a program watches
	// again from where it was.
	client := etcdClient(t, cut)
	next := int64(2)
	var ends int
	whole, stopFollowing := context.WithCancel(testContext(t))
	defer stopFollowing()
	follow := func(until int64) {
		for next < until && whole.Err() == nil {
			ctx, stop := context.WithCancel(clientv3.WithRequireLeader(whole))
			for m := range client.Watch(ctx, "k", clientv3.WithRev(next)) {
				for _, e := range m.Events {
					if e.Kv.ModRevision != next {
						t.Errorf("revision %d, want %d", e.Kv.ModRevision, next)
					}
					next++
				}
				if err := m.Err(); err != nil && !errors.Is(err, rpctypes.ErrNoLeader) {
					t.Errorf("the client's watch ended with %v", err)
				} else if err != nil {
					ends++
				}
				if next >= until {
					break
				}
			}
			stop()
			if t.Failed() {
				return
			}
		}
	}
	mustPut(t, client, "k", "before")
	follow(3)
	var group sync.WaitGroup
	group.Go(func() { follow(103) })
	for _, stream := range []pb.Watch_WatchClient{raw, calm} {
		if m, err := stream.Recv(); err != nil || len(m.Events) != 1 {
			t.Fatal(m, err)
		}
	}
	began := time.Now()
	least, most := 2*electionTimeout, 20*electionTimeout
	defer time.AfterFunc(most, stopRaw).Stop()
	cut.raft.cut()
	if _, err := raw.Recv(); !sameStatus(err, rpctypes.ErrGRPCNoLeader) {
		stopFollowing() // it would hear of no end, either
		group.Wait()
		t.Fatalf("the stream that asked for a leader ended with %v, after %v at most", err, most)
	}
	if took := time.Since(began); took < least {
		t.Errorf("it ended after %v, want %v at least", took, least)
	}
	client.SetEndpoints(other[0].addr, other[1].addr, cut.addr)
	quiet := make(chan error, 1)
	go func() {
		_, err := calm.Recv()
		quiet <- err
	}()
	writer := etcdClient(t, other...)
	for i := range 100 {
		mustPut(t, writer, "k", fmt.Sprint(i))
	}
	group.Wait()
	if ends == 0 {
		t.Error("the client never heard that there is no leader")
	}
	select {
	case err := <-quiet:
		t.Errorf("the stream that asked for nothing ended with %v", err)
	default:
	}
	stopCalm()
	if err := <-quiet; status.Code(err) != codes.Canceled {
		t.Errorf("the stream that asked for nothing ended with %v", err)
	}
	// Later streams that ask are refused at once.
	again, err := pb.NewWatchClient(cut.conn).Watch(metadata.AppendToOutgoingContext(testContext(t), "hasleader", "true"))
	if err == nil {
		_, err = again.Recv()
	}
	if !sameStatus(err, rpctypes.ErrGRPCNoLeader) {
		t.Errorf("the next stream: %v", err)
	}
}

// O-58: a lease that runs out is two deletions with what was there before, at one
// revision, on every server, once; also when the leader dies just before.
func TestO58ExpiryIsAnEvent(t *testing.T) {
	for _, kill := range []bool{false, true} {
		t.Run(fmt.Sprintf("kill %t", kill), func(t *testing.T) {
			t.Parallel() // it mostly waits
			c := startCluster(t, 3, options{})
			lead := c.leader(t)
			servers := slices.DeleteFunc(slices.Clone(c.servers), func(s *testServer) bool { return kill && s == lead })
			s := servers[0]
			var streams []pb.Watch_WatchClient
			for _, s := range servers {
				streams = append(streams, openWatch(t, s, &pb.WatchCreateRequest{Key: []byte("p/"), RangeEnd: []byte("p0"), PrevKv: true, StartRevision: 1}))
			}
			granting := time.Now()
			id := grant(t, s, 0, 3).ID
			granted := time.Now()
			putWith(t, s, "p/b", id)
			putWith(t, s, "p/a", id)
			if kill {
				time.Sleep(time.Until(granted.Add(2500 * time.Millisecond)))
				lead.kill()
			}
			for i, stream := range streams {
				var got []string
				var messages []*pb.WatchResponse
				for len(got) < 4 {
					m, err := stream.Recv()
					if err != nil {
						t.Fatal(err)
					}
					messages = append(messages, m)
					for _, e := range m.Events {
						got = append(got, fmt.Sprintf("%s %s %d, before %s", e.Type, e.Kv.Key, e.Kv.ModRevision, e.PrevKv.GetValue()))
					}
				}
				want := []string{"PUT p/b 2, before ", "PUT p/a 3, before ", "DELETE p/a 4, before v", "DELETE p/b 4, before v"}
				if !slices.Equal(got, want) {
					t.Errorf("%s: %q, want %q", servers[i].id, got, want)
				}
				if last := messages[len(messages)-1]; len(last.Events) < 2 || last.Events[len(last.Events)-1].Type != mvccpb.Event_DELETE {
					t.Errorf("%s: the deletions came apart: %v", servers[i].id, messages)
				}
			}
			if took := time.Since(granting); took < 3*time.Second || took > 15*time.Second {
				t.Errorf("a lease of 3 s ended after %v", took)
			}
			// Once: what comes next is the next write.
			eventually(t, "a write", func() bool {
				ctx, stop := context.WithTimeout(context.Background(), 5*time.Second)
				defer stop()
				_, err := s.kv().Put(ctx, &pb.PutRequest{Key: []byte("p/end")})
				return err == nil
			})
			for i, stream := range streams {
				m, err := stream.Recv()
				if err != nil || string(m.Events[0].Kv.Key) != "p/end" {
					t.Errorf("%s: after the end of the lease came %v, %v", servers[i].id, m, err)
				}
			}
		})
	}
}

// A server that stops ends its streams so that clients go elsewhere.
func TestStreamsEndWhenTheServerStops(t *testing.T) {
	s := startCluster(t, 1, options{}).servers[0]
	stream := openWatch(t, s, &pb.WatchCreateRequest{Key: []byte("k")})
	alive, err := s.lease().LeaseKeepAlive(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	_ = alive.Send(&pb.LeaseKeepAliveRequest{ID: 1})
	if _, err := alive.Recv(); err != nil {
		t.Fatal(err)
	}
	s.api.stop(errStopped) // what Run does first
	if _, err := stream.Recv(); !sameStatus(err, rpctypes.ErrGRPCStopped) {
		t.Errorf("the watch ended with %v", err)
	}
	if _, err := alive.Recv(); !sameStatus(err, rpctypes.ErrGRPCStopped) {
		t.Errorf("the keep-alives ended with %v", status.Convert(err))
	}
}
