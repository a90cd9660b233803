package server

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
)

// Every server of a new cluster serves the etcd API on the port of the native
// one, from its first second, and the rest of it over HTTP.
func TestEtcdAPIIsServed(t *testing.T) {
	c := newCluster(t, 3)
	c.startAll()
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	for i, s := range c.running {
		conn, err := grpc.NewClient("passthrough:///"+s.Addrs().GRPC, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		kv := pb.NewKVClient(conn)
		key := fmt.Append(nil, "k", i)
		eventually(t, 10*time.Second, "the cluster knows keys", func() bool {
			_, err = kv.Put(ctx, &pb.PutRequest{Key: key, Value: []byte("v")})
			return status.Code(err) != codes.Unavailable
		})
		if err != nil {
			t.Fatalf("%s: %v", s.ID(), err)
		}
		// The native API's interceptors leave etcd's errors as they are.
		if _, err := kv.Put(ctx, &pb.PutRequest{}); status.Code(err) != codes.InvalidArgument || status.Convert(err).Message() != "etcdserver: key is not provided" {
			t.Errorf("%s: empty key: %v", s.ID(), err)
		}
		var members *pb.MemberListResponse
		eventually(t, 10*time.Second, s.ID()+" knows where each member is found", func() bool {
			members, err = pb.NewClusterClient(conn).MemberList(ctx, &pb.MemberListRequest{Linearizable: true})
			return err != nil && status.Code(err) != codes.Unavailable ||
				err == nil && !slices.ContainsFunc(members.Members, func(m *pb.Member) bool { return len(m.ClientURLs) != 1 })
		})
		if err != nil || len(members.Members) != 3 {
			t.Fatalf("%s: members %v, %v", s.ID(), members, err)
		}
		eventually(t, 10*time.Second, s.ID()+" is well", func() bool {
			return strings.Contains(httpGet(t, "http://"+s.Addrs().HTTP+"/health"), `"health":"true"`)
		})
		for path, want := range map[string]string{
			"/version": `"etcdserver":"3.6.0"`, "/metrics": "leasehold_kv_revision",
		} {
			if body := httpGet(t, "http://"+s.Addrs().HTTP+path); !strings.Contains(body, want) {
				t.Errorf("%s: %s answers %q, want %q in it", s.ID(), path, body, want)
			}
		}
	}
}

func httpGet(t *testing.T, url string) string {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}
