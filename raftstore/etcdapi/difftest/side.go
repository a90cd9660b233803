package difftest

import (
	"context"
	"fmt"
	"math"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// callTimeout bounds each call: an answer that takes longer is a difference.
const callTimeout = 20 * time.Second

// Doctor changes an answer before it is compared, in place; the comparison
// must notice. It returns the error to answer with instead, or err.
type Doctor func(method string, resp proto.Message, err error) error

// Side is one of the two clusters, reached at each of its servers. Methods may
// be called from any goroutine.
type Side struct {
	Name   string
	conns  []*grpc.ClientConn
	doctor Doctor
	check  headerCheck
	keep   []pb.Lease_LeaseKeepAliveClient
	end    context.CancelFunc
}

// Dial connects to every server of a cluster.
func Dial(ctx context.Context, name string, addrs []string) (*Side, error) {
	s := &Side{Name: name}
	ctx, s.end = context.WithCancel(ctx)
	for _, addr := range addrs {
		conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(math.MaxInt32), grpc.MaxCallSendMsgSize(math.MaxInt32), grpc.WaitForReady(true)))
		if err != nil {
			return nil, fmt.Errorf("reach %s at %s: %w", name, addr, err)
		}
		s.conns = append(s.conns, conn)
		keep, err := pb.NewLeaseClient(conn).LeaseKeepAlive(ctx)
		if err != nil {
			return nil, fmt.Errorf("open keep-alive stream to %s at %s: %w", name, addr, err)
		}
		s.keep = append(s.keep, keep)
	}
	return s, nil
}

// WaitServing waits until each server answers a linearizable read.
func (s *Side) WaitServing(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for at := range s.conns {
		var a Answer
		err := poll(ctx, 20*time.Millisecond, func() bool {
			a = s.Do(ctx, &Call{Method: methodRange, At: at, Req: &pb.RangeRequest{Key: []byte{'a'}}})
			return a.Err == nil
		})
		if err != nil {
			return fmt.Errorf("%s: server %d does not serve: %w: %s", s.Name, at, err, a)
		}
	}
	return nil
}

// Close closes the connections.
func (s *Side) Close() {
	s.end()
	for _, c := range s.conns {
		_ = c.Close()
	}
}

// Answer is what a side said to a call.
type Answer struct {
	Resp proto.Message // nil when Err is not
	Err  *status.Status
}

// Do sends a call to the server that it names and returns what it answers.
func (s *Side) Do(ctx context.Context, c *Call) Answer {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	resp := c.answer()
	var err error
	if c.Method == methodKeepAlive {
		err = s.keepAlive(c, resp)
	} else {
		err = s.conns[c.At%len(s.conns)].Invoke(ctx, c.Method, c.Req, resp)
	}
	if s.doctor != nil {
		err = s.doctor(c.Method, resp, err)
	}
	if err != nil {
		return Answer{Err: status.Convert(err)}
	}
	return Answer{Resp: resp}
}

// keepAlive sends on the stream that stays open, and takes the next answer.
// One call at a time.
func (s *Side) keepAlive(c *Call, resp proto.Message) error {
	stream := s.keep[c.At%len(s.keep)]
	if err := stream.Send(c.Req.(*pb.LeaseKeepAliveRequest)); err != nil {
		return err
	}
	got, err := stream.Recv()
	if err != nil {
		return err
	}
	proto.Merge(resp, got)
	return nil
}
