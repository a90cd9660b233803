package worker

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
)

// cluster is the other end of the protocol, by script: some servers over one
// table. It keeps sessions by the rules (a renewal counts from when it arrives,
// an expired one is gone), and does with leases what the test says. The real
// servers are tested against the worker elsewhere; here every answer can be
// lost, late or wrong.
type cluster struct {
	t    *testing.T
	net  *memnet
	ttl  time.Duration
	mode leaseholdv1.Takeover

	mu       sync.Mutex
	servers  []*grpc.Server
	addrs    []string
	leader   int // index, -1: none
	parts    uint32
	spaces   []string
	sessions map[uint64]*peerSession
	token    uint64
	index    uint64
	sees     []*leaseholdv1.KeepAliveRequest
	// keepAlive, if set, answers keep-alives instead of acknowledging.
	keepAlive func(*leaseholdv1.KeepAliveRequest) error
	// open, if set, answers opens.
	open     func(*leaseholdv1.OpenSession) error
	openLag  time.Duration // between opening and saying so
	releases []*leaseholdv1.ReleaseLeases
	leaves   []*leaseholdv1.LeaveSession
	reports  []uint64
	opens    int
	noStream bool // refuse every stream
	// deny, if set, says which server lets nobody in, and why.
	deny    func(server int) error
	noDrain bool // do not answer a leave with drains
	changed chan struct{}
}

type peerSession struct {
	id, incarnation uint64
	worker          string
	deadline        time.Time
	barred          string
	held            map[leaseAt]uint64
	draining        map[leaseAt]bool
	leaving         bool
	out             chan *leaseholdv1.AttachResponse // of the stream
	keyspaces       []string
}

type leaseAt struct{ space, partition uint32 }

func newCluster(t *testing.T, ttl time.Duration, servers int, spaces ...string) *cluster {
	if len(spaces) == 0 {
		spaces = []string{"orders"}
	}
	c := &cluster{
		t: t, net: newMemnet(), ttl: ttl, mode: leaseholdv1.Takeover_TAKEOVER_STRICT, parts: 64, spaces: spaces,
		sessions: map[uint64]*peerSession{}, token: 1000, changed: make(chan struct{}),
	}
	for i := range servers {
		addr := fmt.Sprintf("10.0.0.%d:7400", i+1)
		c.addrs = append(c.addrs, addr)
		c.servers = append(c.servers, nil)
		c.start(i)
	}
	return c
}

func (c *cluster) start(i int) {
	s := grpc.NewServer(grpc.WaitForHandlers(true), grpc.UnaryInterceptor(c.gateUnary(i)), grpc.StreamInterceptor(c.gateStream(i)), grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}))
	ps := &peerServer{cluster: c, i: i}
	leaseholdv1.RegisterSessionServiceServer(s, ps)
	leaseholdv1.RegisterClusterServiceServer(s, ps)
	l := c.net.listen(c.addrs[i])
	c.servers[i] = s
	go s.Serve(l)
}

// gate is in front of every call.
func (c *cluster) gate(i int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.deny == nil {
		return nil
	}
	return c.deny(i)
}

func (c *cluster) gateUnary(i int) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, h grpc.UnaryHandler) (any, error) {
		if err := c.gate(i); err != nil {
			return nil, err
		}
		return h(ctx, req)
	}
}

func (c *cluster) gateStream(i int) grpc.StreamServerInterceptor {
	return func(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, h grpc.StreamHandler) error {
		if err := c.gate(i); err != nil {
			return err
		}
		return h(srv, ss)
	}
}

func (c *cluster) stop() {
	c.net.mu.Lock()
	clear(c.net.delay)
	c.net.mu.Unlock()
	for _, s := range c.servers {
		s.Stop()
	}
}

func (c *cluster) list() string {
	out := ""
	for i, a := range c.addrs {
		if i > 0 {
			out += ","
		}
		out += a
	}
	return out
}

func refusedWith(code codes.Code, reason, value string) error {
	return leaseholdv1.StatusError(code, &leaseholdv1.ErrorDetail{Reason: reason, Value: value, Message: reason + " " + value})
}

// peerServer is one server of the cluster.
type peerServer struct {
	leaseholdv1.UnimplementedSessionServiceServer
	leaseholdv1.UnimplementedClusterServiceServer
	*cluster
	i int
}

func (p *peerServer) GetStatus(context.Context, *leaseholdv1.GetStatusRequest) (*leaseholdv1.Status, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	st := &leaseholdv1.Status{ServerId: fmt.Sprint("s", p.i), Ready: true}
	if p.leader >= 0 {
		st.LeaderId, st.LeaderGrpcAddr = fmt.Sprint("s", p.leader), p.addrs[p.leader]
	}
	return st, nil
}

func (p *peerServer) Attach(ss leaseholdv1.SessionService_AttachServer) error {
	first, err := ss.Recv()
	if err != nil {
		return err
	}
	s, err := p.enter(first)
	if err != nil {
		return err
	}
	out := s.out
	if p.openLag > 0 && first.GetOpen() != nil {
		select {
		case <-time.After(p.openLag):
		case <-ss.Context().Done():
		}
	}
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if s.out == out {
			s.out = nil
		}
		p.changedLocked()
	}()
	over := make(chan error, 1)
	go func() {
		for {
			m, err := ss.Recv()
			if err != nil {
				over <- err
				return
			}
			p.take(s, m)
		}
	}()
	for {
		select {
		case m := <-out:
			if m == nil {
				return nil
			}
			if err := ss.Send(m); err != nil {
				return err
			}
			if r := m.GetClosed().GetError().GetReason(); r == leaseholdv1.ReasonExpired || r == leaseholdv1.ReasonLeft {
				return nil
			}
		case err := <-over:
			return err
		}
	}
}

func (p *peerServer) enter(first *leaseholdv1.AttachRequest) (*peerSession, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.leader < 0 || p.noStream {
		return nil, refusedWith(codes.Unavailable, leaseholdv1.ReasonNoLeader, "")
	}
	defer p.changedLocked()
	var s *peerSession
	resumed := false
	if o := first.GetOpen(); o != nil {
		p.opens++
		if p.open != nil {
			if err := p.open(o); err != nil {
				return nil, err
			}
		}
		for _, k := range o.GetKeyspaces() {
			if p.spaceLocked(k) == 0 {
				return nil, refusedWith(codes.NotFound, leaseholdv1.ReasonNotFound, k)
			}
		}
		if s = p.sessions[o.GetSessionId()]; s == nil {
			s = &peerSession{
				id: o.GetSessionId(), incarnation: uint64(len(p.sessions) + 1), worker: o.GetWorkerId(),
				deadline: time.Now().Add(p.ttl), held: map[leaseAt]uint64{}, draining: map[leaseAt]bool{},
			}
			p.sessions[s.id] = s
		}
		s.keyspaces = o.GetKeyspaces()
	} else {
		resumed = true
		s = p.sessions[first.GetResume().GetSessionId()]
		if s == nil || time.Now().After(s.deadline) {
			gone := &peerSession{out: make(chan *leaseholdv1.AttachResponse, 4)}
			gone.out <- closedMessage(leaseholdv1.ReasonExpired)
			return gone, nil
		}
	}
	if s.out != nil {
		close(s.out)
	}
	s.out = make(chan *leaseholdv1.AttachResponse, 10_000)
	if s.barred != "" {
		s.out <- closedMessage(s.barred)
		return s, nil
	}
	opened := &leaseholdv1.SessionOpened{
		SessionId: s.id, Incarnation: s.incarnation, ClusterId: "c", TtlMs: p.ttl.Milliseconds(), Resumed: resumed,
	}
	for _, k := range s.keyspaces {
		opened.Keyspaces = append(opened.Keyspaces, p.joinedLocked(k))
	}
	s.out <- &leaseholdv1.AttachResponse{Response: &leaseholdv1.AttachResponse_Opened{Opened: opened}}
	s.out <- p.listLocked(s)
	return s, nil
}

func (p *peerServer) spaceLocked(name string) uint32 {
	for i, n := range p.spaces {
		if n == name {
			return uint32(i + 1)
		}
	}
	return 0
}

func (p *peerServer) joinedLocked(name string) *leaseholdv1.KeyspaceJoined {
	return &leaseholdv1.KeyspaceJoined{
		KeyspaceId: p.spaceLocked(name), Name: name, Partitions: p.parts, TtlMs: p.ttl.Milliseconds(), Takeover: p.mode,
	}
}

func (c *cluster) listLocked(s *peerSession) *leaseholdv1.AttachResponse {
	list := &leaseholdv1.LeaseList{Index: c.index}
	for at, token := range s.held {
		list.Granted = append(list.Granted, &leaseholdv1.Leases{
			KeyspaceId: at.space, Partitions: []uint32{at.partition}, Tokens: []uint64{token},
		})
	}
	return &leaseholdv1.AttachResponse{Response: &leaseholdv1.AttachResponse_Leases{Leases: list}}
}

func (p *peerServer) take(s *peerSession, m *leaseholdv1.AttachRequest) {
	switch m := m.GetRequest().(type) {
	case *leaseholdv1.AttachRequest_KeepAlive:
		ack, err := p.renew(m.KeepAlive)
		p.mu.Lock()
		if err == nil {
			p.pushLocked(s, &leaseholdv1.AttachResponse{Response: &leaseholdv1.AttachResponse_KeepAlive{KeepAlive: ack}})
		} else if r := leaseholdv1.ReasonOf(err); r == leaseholdv1.ReasonExpired {
			p.pushLocked(s, closedMessage(r))
		}
		p.mu.Unlock()
	case *leaseholdv1.AttachRequest_Release:
		p.release(s, m.Release)
	case *leaseholdv1.AttachRequest_Join:
		p.mu.Lock()
		j := &leaseholdv1.KeyspaceJoined{Name: m.Join.GetKeyspace(), Error: &leaseholdv1.ErrorDetail{Reason: leaseholdv1.ReasonNotFound, Message: "no such keyspace"}}
		if p.spaceLocked(m.Join.GetKeyspace()) != 0 {
			j = p.joinedLocked(m.Join.GetKeyspace())
			s.keyspaces = append(s.keyspaces, j.GetName())
		}
		j.Request = m.Join.GetRequest()
		p.pushLocked(s, &leaseholdv1.AttachResponse{Response: &leaseholdv1.AttachResponse_Joined{Joined: j}})
		p.changedLocked()
		p.mu.Unlock()
	case *leaseholdv1.AttachRequest_Leave:
		p.leave(s, m.Leave)
	case *leaseholdv1.AttachRequest_ReportToken:
		p.mu.Lock()
		p.reports = append(p.reports, m.ReportToken.GetToken())
		p.changedLocked()
		p.mu.Unlock()
	}
}

func (c *cluster) renew(m *leaseholdv1.KeepAliveRequest) (*leaseholdv1.KeepAliveResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sees = append(c.sees, m)
	c.changedLocked()
	if c.keepAlive != nil {
		if err := c.keepAlive(m); err != nil {
			return nil, err
		}
	}
	if c.leader < 0 {
		return nil, refusedWith(codes.Unavailable, leaseholdv1.ReasonNoLeader, "")
	}
	s := c.sessions[m.GetSessionId()]
	if s == nil || time.Now().After(s.deadline) {
		return nil, refusedWith(codes.NotFound, leaseholdv1.ReasonExpired, "")
	}
	if s.barred != "" {
		return nil, refusedWith(codes.FailedPrecondition, s.barred, "")
	}
	s.deadline = time.Now().Add(c.ttl)
	return &leaseholdv1.KeepAliveResponse{SessionId: s.id, Seq: m.GetSeq(), TtlMs: c.ttl.Milliseconds(), Index: c.index}, nil
}

func (p *peerServer) KeepAlive(_ context.Context, m *leaseholdv1.KeepAliveRequest) (*leaseholdv1.KeepAliveResponse, error) {
	return p.renew(m)
}
