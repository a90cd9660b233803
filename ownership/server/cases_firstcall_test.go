package server

import (
	"testing"

	etcdpb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"

	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
)

// A stranger may say little, but who proves themselves with their very first call is
// none when its message comes, however large it is.
func TestFirstCallMayBeLarge(t *testing.T) {
	t.Parallel()
	c, ca := secureCluster(t, 1)
	c.startAll()
	token := c.credential(c.tls, &leaseholdv1.CreateCredentialRequest{Name: "app", Role: leaseholdv1.Role_ROLE_WORKER})
	value := make([]byte, 1<<20)
	for range 20 {
		conn, err := grpc.NewClient("passthrough:///"+c.running[0].Addrs().GRPC, grpc.WithTransportCredentials(credentials.NewTLS(ca.Anonymous())))
		if err != nil {
			t.Fatal(err)
		}
		ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+token)
		_, err = etcdpb.NewKVClient(conn).Put(ctx, &etcdpb.PutRequest{Key: []byte("k"), Value: value})
		_ = conn.Close()
		if err != nil {
			t.Fatalf("the first call, of 1 MiB: %v", err)
		}
	}
}
