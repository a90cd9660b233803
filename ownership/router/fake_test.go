package router

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"

	pb "github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
)

// fake is a cluster by script: some servers over one table, with the events
// that led to it. The real servers are tested with the router elsewhere; here
// every event can be lost, late or twice.
type fake struct {
	t   *testing.T
	net *memnet

	mu       sync.Mutex
	addrs    []string
	servers  []*grpc.Server
	leader   int
	cluster  string
	revision uint64
	index    uint64
	token    uint64
	spaces   map[string]*fakeSpace
	lastID   uint32
	sessions map[uint64]fakeSession
	events   []*pb.Event
	first    uint64 // events up to this revision are gone
	changed  chan struct{}
	calls    map[string]int
	watches  map[int]int           // by server, open now
	ages     map[int]time.Duration // of servers out of touch
	behind   map[int]uint64        // revision that a server does not get beyond
	// mangle, if set, changes what one message of a watch has.
	mangle      func([]*pb.Event) []*pb.Event
	noEndpoints bool // in grants
	// hold, if set, keeps answers about one partition back until it is closed.
	hold chan struct{}
}

type fakeSpace struct {
	id   uint32
	rows []fakeRow
}

type fakeRow struct {
	token, session uint64
	draining       bool
}

type fakeSession struct{ worker, endpoint string }

func newFake(t *testing.T, servers int) *fake {
	f := &fake{
		t: t, net: newMemnet(), cluster: "c1", revision: 10, index: 100, token: 1 << 40,
		spaces: map[string]*fakeSpace{}, sessions: map[uint64]fakeSession{}, changed: make(chan struct{}),
		calls: map[string]int{}, watches: map[int]int{}, ages: map[int]time.Duration{}, behind: map[int]uint64{},
	}
	f.first = f.revision
	for i := range servers {
		f.addrs = append(f.addrs, fmt.Sprintf("10.0.0.%d:7400", i+1))
		f.servers = append(f.servers, nil)
		f.start(i)
	}
	t.Cleanup(func() {
		for i := range f.servers {
			f.stop(i)
		}
	})
	return f
}

func (f *fake) start(i int) {
	s := grpc.NewServer(grpc.WaitForHandlers(true), grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second, PermitWithoutStream: true}))
	fs := &fakeServer{fake: f, i: i}
	pb.RegisterClusterServiceServer(s, fs)
	pb.RegisterKeyspaceServiceServer(s, fs)
	pb.RegisterPartitionServiceServer(s, fs)
	pb.RegisterWorkerServiceServer(s, fs)
	pb.RegisterEventServiceServer(s, fs)
	l := f.net.listen(f.addrs[i])
	f.servers[i] = s
	go s.Serve(l)
}

func (f *fake) stop(i int) {
	if f.servers[i] != nil {
		f.servers[i].Stop()
		f.servers[i] = nil
	}
}

func (f *fake) list() string {
	out := ""
	for i, a := range f.addrs {
		if i > 0 {
			out += ","
		}
		out += a
	}
	return out
}

// do changes the cluster under its lock, and wakes who watches.
func (f *fake) do(fn func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	fn()
	close(f.changed)
	f.changed = make(chan struct{})
}

func (f *fake) count(call string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[call]
}

func (f *fake) watching(i int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.watches[i] > 0
}

func (f *fake) emitLocked(kind, keyspace string, p int, session uint64, cause string) *pb.Event {
	f.revision++
	ev := &pb.Event{Revision: f.revision, Index: f.index, Kind: kind, Keyspace: keyspace, SessionId: session, Worker: f.sessions[session].worker, Cause: cause}
	if ks := f.spaces[keyspace]; ks != nil {
		ev.KeyspaceId = ks.id
		if p >= 0 {
			n := uint32(p)
			ev.Partition, ev.Token = &n, ks.rows[p].token
		}
	}
	f.events = append(f.events, ev)
	return ev
}

func (f *fake) createLocked(name string, partitions int) {
	f.lastID++
	f.index++
	f.spaces[name] = &fakeSpace{id: f.lastID, rows: make([]fakeRow, partitions)}
	f.emitLocked("keyspace_create", name, -1, 0, "")
}

func (f *fake) removeLocked(name string) {
	f.index++
	for p, r := range f.spaces[name].rows {
		if r.session != 0 {
			f.endLocked("release", name, p, "deleted")
		}
	}
	f.emitLocked("keyspace_gone", name, -1, 0, "deleted")
	delete(f.spaces, name)
}

func (f *fake) openLocked(session uint64, worker, endpoint string) {
	f.sessions[session] = fakeSession{worker, endpoint}
}

func (f *fake) grantLocked(name string, p int, session uint64) uint64 {
	f.index++
	f.token++
	f.spaces[name].rows[p] = fakeRow{token: f.token, session: session}
	ev := f.emitLocked("grant", name, p, session, "balance")
	if !f.noEndpoints {
		ev.Endpoint = f.sessions[session].endpoint
	}
	return f.token
}

func (f *fake) drainLocked(name string, p int) {
	f.index++
	f.spaces[name].rows[p].draining = true
	f.emitLocked("drain", name, p, f.spaces[name].rows[p].session, "balance")
}

func (f *fake) endLocked(kind, name string, p int, cause string) {
	r := &f.spaces[name].rows[p]
	f.emitLocked(kind, name, p, r.session, cause)
	r.session, r.draining = 0, false
}

// moveLocked releases and grants in one log entry, as a handoff does.
func (f *fake) moveLocked(name string, p int, session uint64) uint64 {
	if f.spaces[name].rows[p].session != 0 {
		f.index++
		f.endLocked("release", name, p, "drained")
		f.index--
	}
	return f.grantLocked(name, p, session)
}

// compactLocked forgets all events so far.
func (f *fake) compactLocked() { f.first, f.events = f.revision, nil }

func (f *fake) partitionLocked(name string, p int) *pb.Partition {
	r := f.spaces[name].rows[p]
	m := &pb.Partition{Keyspace: name, Partition: uint32(p), Token: r.token, Index: f.index, State: pb.PartitionState_PARTITION_STATE_UNOWNED}
	if r.session != 0 {
		m.SessionId, m.Owner, m.Endpoint = r.session, f.sessions[r.session].worker, f.sessions[r.session].endpoint
		m.State = pb.PartitionState_PARTITION_STATE_OWNED
		if r.draining {
			m.State = pb.PartitionState_PARTITION_STATE_DRAINING
		}
	}
	return m
}

// fakeServer is one of the servers.
type fakeServer struct {
	pb.UnimplementedClusterServiceServer
	pb.UnimplementedKeyspaceServiceServer
	pb.UnimplementedPartitionServiceServer
	pb.UnimplementedWorkerServiceServer
	pb.UnimplementedEventServiceServer
	*fake
	i int
}

func (s *fakeServer) GetStatus(context.Context, *pb.GetStatusRequest) (*pb.Status, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := &pb.Status{ServerId: fmt.Sprint("s", s.i), Ready: true, ClusterId: s.cluster, Revision: s.revision}
	if s.leader >= 0 && s.ages[s.i] == 0 {
		st.LeaderId, st.LeaderGrpcAddr = fmt.Sprint("s", s.leader), s.addrs[s.leader]
	}
	return st, nil
}

func refuse(code codes.Code, reason string, revision uint64) error {
	return pb.StatusError(code, &pb.ErrorDetail{Reason: reason, Message: reason, Revision: revision})
}

// in looks at a keyspace under the lock.
func (s *fakeServer) in(call, name string, fn func(*fakeSpace)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls[call]++
	ks := s.spaces[name]
	if ks == nil {
		return refuse(codes.NotFound, pb.ReasonNotFound, 0)
	}
	fn(ks)
	return nil
}

func (s *fakeServer) GetKeyspace(_ context.Context, r *pb.GetKeyspaceRequest) (m *pb.Keyspace, err error) {
	err = s.in("keyspace", r.GetName(), func(ks *fakeSpace) {
		m = &pb.Keyspace{Id: ks.id, Name: r.GetName(), Partitions: uint32(len(ks.rows))}
	})
	return m, err
}

func (s *fakeServer) ListPartitions(_ context.Context, r *pb.ListPartitionsRequest) (m *pb.ListPartitionsResponse, err error) {
	err = s.in("list", r.GetKeyspace(), func(ks *fakeSpace) {
		m = &pb.ListPartitionsResponse{}
		for p := int(r.GetFirst()); p < len(ks.rows); p++ {
			if len(m.Items) == int(r.GetLimit()) {
				m.Next = uint32(p)
				break
			}
			m.Items = append(m.Items, s.partitionLocked(r.GetKeyspace(), p))
		}
	})
	return m, err
}

func (s *fakeServer) GetPartition(_ context.Context, r *pb.GetPartitionRequest) (m *pb.Partition, err error) {
	if s.hold != nil {
		<-s.hold
	}
	err = s.in("partition", r.GetKeyspace(), func(*fakeSpace) { m = s.partitionLocked(r.GetKeyspace(), int(r.GetPartition())) })
	return m, err
}

func (s *fakeServer) ListWorkers(context.Context, *pb.ListWorkersRequest) (*pb.ListWorkersResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls["workers"]++
	m := &pb.ListWorkersResponse{}
	for id, x := range s.sessions {
		m.Items = append(m.Items, &pb.Worker{Id: x.worker, SessionId: id, Endpoint: x.endpoint})
	}
	return m, nil
}

func (s *fakeServer) ListEvents(context.Context, *pb.ListEventsRequest) (*pb.ListEventsResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls["revision"]++
	return &pb.ListEventsResponse{Revision: s.revision}, nil
}

// WatchEvents does as the real one.
func (s *fakeServer) WatchEvents(r *pb.WatchEventsRequest, ss pb.EventService_WatchEventsServer) error {
	beat := time.NewTicker(time.Duration(r.GetHeartbeatMs()) * time.Millisecond)
	defer beat.Stop()
	s.mu.Lock()
	s.calls["watch"]++
	s.watches[s.i]++
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.watches[s.i]--
	}()
	after, started := r.GetAfterRevision(), false
	for beats := false; ; {
		s.mu.Lock()
		last := s.revision
		if most, ok := s.behind[s.i]; ok {
			last = min(last, most)
		}
		changed, age, first, cluster := s.changed, s.ages[s.i], s.first, s.cluster
		var items []*pb.Event
		for _, ev := range s.events {
			if ev.GetRevision() > after && ev.GetRevision() <= last && (r.GetKeyspace() == "" || ev.GetKeyspace() == r.GetKeyspace()) {
				items = append(items, ev)
			}
		}
		mangle := s.mangle
		s.mu.Unlock()
		switch {
		case r.GetClusterId() != cluster:
			return refuse(codes.FailedPrecondition, pb.ReasonWrongCluster, 0)
		case after > last && !started:
			return refuse(codes.OutOfRange, pb.ReasonCompacted, last)
		case after < first:
			return refuse(codes.OutOfRange, pb.ReasonCompacted, first)
		}
		if mangle != nil {
			items = mangle(slices.Clone(items))
		}
		if len(items) > 0 || beats || !started {
			after = max(after, last)
			if err := ss.Send(&pb.WatchEventsResponse{Items: items, Revision: after, AgeMs: age.Milliseconds()}); err != nil {
				return err
			}
		}
		started, beats = true, false
		select {
		case <-changed:
		case <-beat.C:
			beats = true
		case <-ss.Context().Done():
			return ss.Context().Err()
		}
	}
}

// stall lets no event through any more.
func (f *fake) stall() {
	f.do(func() { f.mangle = func([]*pb.Event) []*pb.Event { return nil } })
}

// router makes a Router and runs it until the test ends.
func (f *fake) router(cfg Config) *Router {
	f.t.Helper()
	r, _ := f.runRouter(cfg)
	return r
}

func (f *fake) runRouter(cfg Config) (*Router, context.CancelFunc) {
	f.t.Helper()
	cfg.Servers, cfg.Dialer = f.list(), f.net.dial
	if cfg.Keyspaces == nil {
		cfg.Keyspaces = []string{"orders"}
	}
	r, err := New(cfg)
	if err != nil {
		f.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	stop := sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			f.t.Errorf("Run returned %v", err)
		}
	})
	f.t.Cleanup(stop)
	return r, stop
}

// ready waits for the router's first table.
func ready(t *testing.T, r *Router) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := r.WaitReady(ctx); err != nil {
		t.Fatal(err)
	}
}

// agrees compares a router's table with the cluster's.
func (f *fake) agrees(r *Router, name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	ks := f.spaces[name]
	if ks == nil {
		if _, err := r.At(name, 0); err == nil {
			return fmt.Errorf("keyspace %s is gone, and still routed", name)
		}
		return nil
	}
	for p, row := range ks.rows {
		at, err := r.At(name, uint32(p))
		x := f.sessions[row.session]
		if at.Token != row.token || at.Owner != x.worker || at.Endpoint != x.endpoint || at.Draining != row.draining || (err == nil) != (row.session != 0) {
			return fmt.Errorf("%s/%s: %+v, %v; the cluster has %+v of %+v", name, strconv.Itoa(p), at, err, row, x)
		}
	}
	return nil
}
