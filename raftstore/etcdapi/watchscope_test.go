package etcdapi

import (
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

func createWatch(key, end string, id int64) *pb.WatchRequest {
	return &pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: &pb.WatchCreateRequest{
		Key: []byte(key), RangeEnd: []byte(end), WatchId: id, PrevKv: true,
	}}}
}

// Watches of foreign ranges are refused one by one, with nothing about what is
// there; the others of the stream go on.
func TestForeignWatchesAreRefused(t *testing.T) {
	c := startCluster(t, 3, secured())
	putAs(t, c.leader(t), "boss", "/b/k", 0)
	for _, s := range c.servers {
		stream, err := pb.NewWatchClient(s.conn).Watch(as(testContext(t), "a"))
		if err != nil {
			t.Fatal(err)
		}
		ask := func(r *pb.WatchRequest) *pb.WatchResponse {
			t.Helper()
			if err := stream.Send(r); err != nil {
				t.Fatal(err)
			}
			m, err := stream.Recv()
			if err != nil {
				t.Fatal(err)
			}
			return m
		}
		if m := ask(createWatch("/a/"+s.id+"/", "/a/"+s.id+"0", 5)); !m.Created || m.Canceled || m.WatchId != 5 {
			t.Fatalf("a's own watch: %v", m)
		}
		for _, foreign := range [][2]string{
			{"/b/k", ""}, {"/a/", "/b0"}, {"/a/", "\x00"}, {"", "\x00"}, {"\x00", "\x00"}, {"/a", "/a0"}, {"/a/", "/a0\x00"}, {"", "/a0"}, {"", ""},
		} {
			m := ask(createWatch(foreign[0], foreign[1], 0))
			if !m.Created || !m.Canceled || m.WatchId != -1 || m.CancelReason != rpctypes.ErrPermissionDenied.Error() {
				t.Errorf("%s: watch from %q to %q: %v", s.id, foreign[0], foreign[1], m)
			}
		}
		putAs(t, s, "boss", "/b/k", 0)
		putAs(t, s, "a", "/a/"+s.id+"/k", 0)
		m, err := stream.Recv()
		if err != nil || m.WatchId != 5 || len(m.Events) != 1 || string(m.Events[0].Kv.Key) != "/a/"+s.id+"/k" {
			t.Errorf("%s: a's own watch hears %v, %v", s.id, m, err)
		}
		_ = stream.CloseSend()
	}
}

// etcd's client learns from a refused watch what it was.
func TestEtcdsClientUnderstandsARefusedWatch(t *testing.T) {
	s := startCluster(t, 1, secured()).leader(t)
	client := etcdClient(t, s)
	ctx := as(testContext(t), "a")
	refused := client.Watch(ctx, "/b/", clientv3.WithPrefix())
	for m := range refused {
		if m.Err() != rpctypes.ErrPermissionDenied {
			t.Errorf("%v", m.Err())
		}
	}
	if _, err := client.Put(ctx, "/b/k", "v"); err != rpctypes.ErrPermissionDenied {
		t.Errorf("%v", err)
	}
}
