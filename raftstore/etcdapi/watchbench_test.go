package etcdapi

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/leasehold-dev/leasehold/raftstore/access"
)

// BenchmarkFanOut is one put until the last of 1,000 watchers of its key has been
// written to, with and without gRPC under it, as one stream and as a hundred.
func BenchmarkFanOut(b *testing.B) {
	for _, streams := range []int{1, 100} {
		b.Run(fmt.Sprintf("queues/%d_streams", streams), func(b *testing.B) {
			m := newKeyModel(b)
			h := newHub(m.view, defaultLimitsForTest())
			told := make(chan struct{}, 1000)
			ctx, stop := context.WithCancel(b.Context())
			defer stop()
			fanOut(b, m, h, streams, told, func(i int) *watchStream {
				s := h.newStream(access.Anybody())
				go func() {
					_ = s.send(ctx, func(m *pb.WatchResponse) error {
						if !m.Created {
							told <- struct{}{}
						}
						return nil
					})
				}()
				return s
			})
		})
		b.Run(fmt.Sprintf("grpc/%d_streams", streams), func(b *testing.B) {
			m := newKeyModel(b)
			h := newHub(m.view, defaultLimitsForTest())
			conn := serveHub(b, h)
			told := make(chan struct{}, 1000)
			fanOut(b, m, h, streams, told, func(int) *watchStream {
				client, err := pb.NewWatchClient(conn).Watch(b.Context())
				if err != nil {
					b.Fatal(err)
				}
				for range 1000 / streams {
					_ = client.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: &pb.WatchCreateRequest{Key: []byte("k")}}})
					if _, err := client.Recv(); err != nil {
						b.Fatal(err)
					}
				}
				go func() {
					for {
						if _, err := client.Recv(); err != nil {
							return
						}
						told <- struct{}{}
					}
				}()
				return nil
			})
		})
	}
}

func fanOut(b *testing.B, m *keyModel, h *hub, streams int, told chan struct{}, open func(int) *watchStream) {
	ctx, stop := context.WithCancel(b.Context())
	defer stop()
	for i := range streams {
		if s := open(i); s != nil {
			for range 1000 / streams {
				h.create(s, &pb.WatchCreateRequest{Key: []byte("k")})
			}
		}
	}
	go h.run(ctx, m.wake)
	value := strings.Repeat("v", 100)
	b.ReportAllocs()
	for b.Loop() {
		m.put("k", value)
		for range 1000 {
			<-told
		}
	}
}

// hubServer serves a hub without an API around it.
type hubServer struct {
	pb.UnimplementedWatchServer
	h *hub
}

func (s *hubServer) Watch(stream pb.Watch_WatchServer) error {
	ws := s.h.newStream(access.Anybody())
	defer s.h.drop(ws)
	go func() { _ = ws.send(stream.Context(), stream.Send) }()
	for {
		r, err := stream.Recv()
		if err != nil {
			return err
		}
		s.h.request(ws, r)
	}
}

func serveHub(t testing.TB, h *hub) *grpc.ClientConn {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer()
	pb.RegisterWatchServer(g, &hubServer{h: h})
	go func() { _ = g.Serve(ln) }()
	t.Cleanup(g.Stop)
	conn, err := grpc.NewClient("passthrough:///"+ln.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// BenchmarkIndex is finding who watches a key among 10,000 prefixes.
func BenchmarkIndex(b *testing.B) {
	groups := newGroups()
	h := &hub{limits: testLimits()}
	for i := range 10_000 {
		prefix := fmt.Sprintf("/registry/%05d/", i)
		groups.add(&watcher{stream: h.newStream(access.Anybody()), spec: spec{key: prefix, end: prefix[:len(prefix)-1] + "0", ranged: true}})
	}
	key := []byte("/registry/07777/pod")
	found := 0
	for b.Loop() {
		groups.at(key, func(*group) { found++ })
	}
	if found == 0 {
		b.Fatal("found nothing")
	}
}
