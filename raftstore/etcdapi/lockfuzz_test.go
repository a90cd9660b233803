package etcdapi

import (
	"context"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/leasehold-dev/leasehold/raftstore/etcdapi/v3electionpb"
	"github.com/leasehold-dev/leasehold/raftstore/etcdapi/v3lockpb"
)

// fuzzQueue sends requests of one kind, about locks and elections, beside the one
// session that there is: no panic, nobody waits, and a code that the calls may
// answer.
func fuzzQueue[Req any, PReq message[Req]](f *testing.F, seeds []PReq, do func(context.Context, *grpc.ClientConn, PReq) error) {
	for _, s := range seeds {
		b, err := proto.Marshal(s)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	c := startCluster(f, 1, options{})
	c.grant(f, 5)
	f.Fuzz(func(t *testing.T, b []byte) {
		r := PReq(new(Req))
		if proto.Unmarshal(b, r) != nil {
			return
		}
		ctx, stop := context.WithTimeout(context.Background(), 5*time.Second)
		defer stop()
		switch code := status.Code(do(ctx, c.servers[0].conn, r)); code {
		case codes.OK, codes.InvalidArgument, codes.OutOfRange, codes.NotFound, codes.FailedPrecondition, codes.ResourceExhausted, codes.Unknown:
		default:
			t.Fatalf("%v: %v", r, code)
		}
	})
}

func FuzzLock(f *testing.F) {
	fuzzQueue(f, []*v3lockpb.LockRequest{{}, {Name: []byte("L"), Lease: 5}, {Name: []byte{0}, Lease: 5}, {Name: []byte("L"), Lease: -1}, {Name: []byte("L/5"), Lease: 5}},
		func(ctx context.Context, c *grpc.ClientConn, r *v3lockpb.LockRequest) error {
			if r.Lease == 0 {
				return nil // each has a session of its own, and the next waits for it
			}
			_, err := v3lockpb.NewLockClient(c).Lock(ctx, r)
			return err
		})
}

func FuzzUnlock(f *testing.F) {
	fuzzQueue(f, []*v3lockpb.UnlockRequest{{}, {Key: []byte("L/5")}, {Key: []byte("/")}, {Key: []byte("L/ffffffffffffffff0")}},
		func(ctx context.Context, c *grpc.ClientConn, r *v3lockpb.UnlockRequest) error {
			_, err := v3lockpb.NewLockClient(c).Unlock(ctx, r)
			return err
		})
}

func FuzzCampaign(f *testing.F) {
	fuzzQueue(f, []*v3electionpb.CampaignRequest{{}, {Name: []byte("E"), Lease: 5, Value: []byte("v")}, {Name: []byte("E"), Lease: 6}},
		func(ctx context.Context, c *grpc.ClientConn, r *v3electionpb.CampaignRequest) error {
			if r.Lease == 0 {
				return nil // each has a session of its own, and the next waits for it
			}
			_, err := v3electionpb.NewElectionClient(c).Campaign(ctx, r)
			return err
		})
}

func FuzzProclaim(f *testing.F) {
	leader := &v3electionpb.LeaderKey{Name: []byte("E"), Key: []byte("E/5"), Rev: 2, Lease: 5}
	fuzzQueue(f, []*v3electionpb.ProclaimRequest{{}, {Leader: leader, Value: []byte("v")}, {Leader: &v3electionpb.LeaderKey{Key: []byte("x"), Rev: -1}}},
		func(ctx context.Context, c *grpc.ClientConn, r *v3electionpb.ProclaimRequest) error {
			_, err := v3electionpb.NewElectionClient(c).Proclaim(ctx, r)
			return err
		})
}

func FuzzResign(f *testing.F) {
	leader := &v3electionpb.LeaderKey{Name: []byte("E"), Key: []byte("E/5"), Rev: 2, Lease: 5}
	fuzzQueue(f, []*v3electionpb.ResignRequest{{}, {Leader: leader}, {Leader: &v3electionpb.LeaderKey{Key: []byte("E/"), Rev: 1 << 62}}},
		func(ctx context.Context, c *grpc.ClientConn, r *v3electionpb.ResignRequest) error {
			_, err := v3electionpb.NewElectionClient(c).Resign(ctx, r)
			return err
		})
}

func FuzzLeader(f *testing.F) {
	fuzzQueue(f, []*v3electionpb.LeaderRequest{{}, {Name: []byte("E")}, {Name: []byte{0xff}}},
		func(ctx context.Context, c *grpc.ClientConn, r *v3electionpb.LeaderRequest) error {
			_, err := v3electionpb.NewElectionClient(c).Leader(ctx, r)
			return err
		})
}

func FuzzHashKV(f *testing.F) {
	fuzzQueue(f, []*pb.HashKVRequest{{}, {Revision: 1}, {Revision: -1}, {Revision: 1 << 62}},
		func(ctx context.Context, c *grpc.ClientConn, r *pb.HashKVRequest) error {
			_, err := pb.NewMaintenanceClient(c).HashKV(ctx, r)
			return err
		})
}
