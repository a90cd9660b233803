package client_test

import (
	"context"
	"net"
	"sync"
	"testing"

	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
)

// peer speaks the server's side of the protocol on a real socket, and answers
// as the test tells it.
type peer struct {
	leaseholdv1.UnimplementedClusterServiceServer
	leaseholdv1.UnimplementedKeyspaceServiceServer
	leaseholdv1.UnimplementedWorkerServiceServer
	leaseholdv1.UnimplementedEventServiceServer

	id   string
	addr string
	srv  *grpc.Server

	asked chan struct{} // closed when it is asked for its status
	once  sync.Once

	mu     sync.Mutex
	status *leaseholdv1.Status
	after  *peer // whose answer goes before this one's
	late   bool  // with its next answer
	calls  map[string]int
	create func(context.Context) (*leaseholdv1.Keyspace, error)
	list   func(context.Context) (*leaseholdv1.ListKeyspacesResponse, error)
}

func newPeer(t *testing.T, id string) *peer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return servePeer(t, id, l)
}

func servePeer(t *testing.T, id string, l net.Listener, opts ...grpc.ServerOption) *peer {
	p := &peer{id: id, addr: l.Addr().String(), srv: grpc.NewServer(opts...), calls: map[string]int{}, asked: make(chan struct{})}
	p.status = &leaseholdv1.Status{ServerId: id, Ready: true}
	leaseholdv1.RegisterClusterServiceServer(p.srv, p)
	leaseholdv1.RegisterKeyspaceServiceServer(p.srv, p)
	leaseholdv1.RegisterWorkerServiceServer(p.srv, p)
	leaseholdv1.RegisterEventServiceServer(p.srv, p)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = p.srv.Serve(l)
	}()
	t.Cleanup(func() {
		p.srv.Stop()
		<-done
	})
	return p
}

// leads makes this server name a leader.
func (p *peer) leads(id, addr string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.after, p.late = nil, false
	p.status = &leaseholdv1.Status{ServerId: p.id, Ready: id != "", LeaderId: id, LeaderGrpcAddr: addr, Term: p.status.GetTerm() + 1}
}

// follows makes this server name a leader that is asked, too. On a busy machine
// the leader's answer could come so much later than this one's that the client
// has settled for this server: a late one says nothing before the client asks
// no more, and else it waits until the leader has been asked.
func (p *peer) follows(leader *peer, late bool) {
	p.leads(leader.id, leader.addr)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.after, p.late = leader, late
}

func (p *peer) count(call string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.calls[call]
}

func (p *peer) called(call string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls[call]++
}

func (p *peer) GetStatus(ctx context.Context, _ *leaseholdv1.GetStatusRequest) (*leaseholdv1.Status, error) {
	p.called("status")
	p.once.Do(func() { close(p.asked) })
	p.mu.Lock()
	after, late := p.after, p.late
	p.late = false
	p.mu.Unlock()
	if late {
		<-ctx.Done()
	} else if after != nil {
		select {
		case <-after.asked:
		case <-ctx.Done():
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.status, nil
}

func (p *peer) CreateKeyspace(ctx context.Context, r *leaseholdv1.CreateKeyspaceRequest) (*leaseholdv1.Keyspace, error) {
	p.called("create")
	if p.create != nil {
		return p.create(ctx)
	}
	return &leaseholdv1.Keyspace{Name: r.GetName()}, nil
}

func (p *peer) ListKeyspaces(ctx context.Context, _ *leaseholdv1.ListKeyspacesRequest) (*leaseholdv1.ListKeyspacesResponse, error) {
	p.called("list")
	if p.list != nil {
		return p.list(ctx)
	}
	return &leaseholdv1.ListKeyspacesResponse{Items: []*leaseholdv1.Keyspace{{Name: "by " + p.id}}}, nil
}

func (p *peer) WatchEvents(_ *leaseholdv1.WatchEventsRequest, s grpc.ServerStreamingServer[leaseholdv1.WatchEventsResponse]) error {
	p.called("watch")
	if err := s.Send(&leaseholdv1.WatchEventsResponse{Revision: 7}); err != nil {
		return err
	}
	<-s.Context().Done()
	return s.Context().Err()
}

func refuse(reason, leaderAddr string) error {
	return leaseholdv1.StatusError(codes.Unavailable, &leaseholdv1.ErrorDetail{Reason: reason, Message: reason, LeaderAddr: leaderAddr})
}

// deadAddr is an address at which nobody listens, and nobody can as long as the
// test runs: the caller's end of a connection.
func deadAddr(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c.LocalAddr().String()
}

// silentAddr accepts connections and never says a word: a stopped process.
func silentAddr(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l.Addr().String()
}
