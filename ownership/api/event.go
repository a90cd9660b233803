package api

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"github.com/leasehold-dev/leasehold/raftstore/access"
	"github.com/leasehold-dev/leasehold/raftstore/state"
)

const (
	defaultEventLimit = 1000
	// eventsPerMessage bounds one message of a watch.
	eventsPerMessage = 1024
	// aheadFor is how long a watch waits for this server to reach a revision or
	// a keyspace that the caller has seen at another one.
	aheadFor = 2 * time.Second
	// Bounds of a heartbeat that a watch asks for.
	minHeartbeat = 100 * time.Millisecond
	maxHeartbeat = time.Minute
)

// events is EventService.
type events struct {
	pb.UnimplementedEventServiceServer
	*API
}

// names remembers the names of keyspaces by id, so that events of one that has
// been deleted can still be told.
type names struct {
	mu   sync.Mutex
	byID map[state.KeyspaceID]string
}

func (n *names) learn(s *state.State) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for ks := range s.Keyspaces() {
		n.byID[ks.ID] = ks.Name
	}
}

// learnOf learns the keyspaces of events, those that are new.
func (n *names) learnOf(s *state.State, evs []state.Event) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for i := range evs {
		id := evs[i].Keyspace
		if _, known := n.byID[id]; known || id == 0 {
			continue
		}
		if ks, ok := s.Keyspace(id); ok {
			n.byID[id] = ks.Name
		}
	}
}

func (n *names) of(id state.KeyspaceID) string {
	if id == 0 {
		return ""
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if name, ok := n.byID[id]; ok {
		return name
	}
	return "#" + strconv.FormatUint(uint64(id), 10)
}

// has tells whether some keyspace has or had the name.
func (n *names) has(name string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, v := range n.byID {
		if v == name {
			return true
		}
	}
	return false
}

func (a *events) ListEvents(ctx context.Context, r *pb.ListEventsRequest) (*pb.ListEventsResponse, error) {
	limit, err := limitOf(r.GetLimit(), defaultEventLimit)
	if err != nil {
		return nil, err
	}
	if r.GetSinceMs() < 0 {
		return nil, invalid("since_ms", strconv.FormatInt(r.GetSinceMs(), 10), "want 0 (all that is kept) or more")
	}
	since := int64(0)
	if r.GetSinceMs() > 0 {
		since = a.cfg.Wall().UnixMilli() - r.GetSinceMs()
	}
	if r.GetKeyspace() != "" {
		if err := inScope(access.FromContext(ctx), r.GetKeyspace()); err != nil {
			return nil, err
		}
	}
	visible := sees(ctx)
	var found []state.Event
	var endpoints []string
	resp := &pb.ListEventsResponse{}
	err = a.cfg.Store.Read(ctx, func(s *state.State) {
		a.names.learn(s)
		resp.Revision = s.Revision()
		newestFirst(s, func(ev *state.Event) bool {
			if ev.Wall < since {
				return false
			}
			if a.wanted(ev, r) && visible(a.names.of(ev.Keyspace)) {
				found = append(found, *ev)
			}
			return len(found) < limit
		})
		endpoints = endpointsOf(s, found, nil)
	})
	if err != nil {
		return nil, err
	}
	if r.GetKeyspace() != "" {
		if err := a.checkKeyspace(r.GetKeyspace()); err != nil {
			return nil, err
		}
	}
	for i := len(found) - 1; i >= 0; i-- {
		resp.Items = append(resp.Items, a.eventOf(&found[i], endpoints[i]))
	}
	return resp, nil
}

// newestFirst goes back through the ledger until fn has had enough.
func newestFirst(s *state.State, fn func(*state.Event) bool) {
	var buf []state.Event
	for hi := s.Revision(); hi > 0; {
		lo := hi - min(hi, eventsPerMessage)
		evs, err := s.Events(lo, int(hi-lo), buf[:0])
		var refusal *state.Refusal
		if errors.As(err, &refusal) && refusal.Revision > lo && refusal.Revision < hi {
			lo = refusal.Revision // the last piece is shorter
			evs, err = s.Events(lo, int(hi-lo), buf[:0])
		}
		if err != nil {
			return
		}
		for i := len(evs) - 1; i >= 0; i-- {
			if !fn(&evs[i]) {
				return
			}
		}
		hi, buf = lo, evs
	}
}

func (a *events) checkKeyspace(name string) error {
	if err := checkName("keyspace", name); err != nil {
		return err
	}
	if !a.names.has(name) {
		return notFound("keyspace", "keyspace", name)
	}
	return nil
}

func (a *events) wanted(ev *state.Event, r *pb.ListEventsRequest) bool {
	return (r.GetKeyspace() == "" || a.names.of(ev.Keyspace) == r.GetKeyspace()) &&
		(r.Partition == nil || aboutPartition(ev.Kind) && ev.Partition == r.GetPartition()) &&
		(r.GetCause() == "" || causeName(ev.Cause) == r.GetCause())
}

// endpointsOf appends, for each event, where the owner that it names is reached
// if it is a grant, and "" otherwise. A session keeps its endpoint for life.
func endpointsOf(s *state.State, evs []state.Event, buf []string) []string {
	for i := range evs {
		endpoint := ""
		if evs[i].Kind == state.KindGrant {
			if sess, ok := s.Session(evs[i].Session); ok {
				endpoint = sess.Endpoint
			}
		}
		buf = append(buf, endpoint)
	}
	return buf
}

// WatchEvents sends events from this server's own log as they are applied.
func (a *events) WatchEvents(r *pb.WatchEventsRequest, ss pb.EventService_WatchEventsServer) error {
	return a.watch(ss.Context(), r, ss.Send)
}

func (a *events) watch(ctx context.Context, r *pb.WatchEventsRequest, send func(*pb.WatchEventsResponse) error) error {
	beat, err := heartbeatOf(r)
	if err != nil {
		return err
	}
	defer beat.Stop()
	if r.GetKeyspace() != "" {
		if err := inScope(access.FromContext(ctx), r.GetKeyspace()); err != nil {
			return err
		}
	}
	visible := sees(ctx)
	a.cfg.Metrics.EventWatcher(1)
	defer a.cfg.Metrics.EventWatcher(-1)
	wake := make(chan struct{}, 1)
	defer a.cfg.Store.Notify(wake)()
	after, err := a.watchFrom(ctx, r, wake)
	if err != nil {
		return err
	}
	tell := func(items []*pb.Event) error {
		return send(&pb.WatchEventsResponse{Items: items, Revision: after, AgeMs: a.age().Milliseconds()})
	}
	// At once, so that the caller knows where it stands.
	if err := tell(nil); err != nil {
		return err
	}
	told := after
	var buf []state.Event
	var endpoints []string
	for {
		a.cfg.Store.View(func(s *state.State) {
			buf, endpoints = buf[:0], endpoints[:0]
			if after < s.Revision() {
				buf, err = s.Events(after, eventsPerMessage, buf)
				endpoints = endpointsOf(s, buf, endpoints)
				a.names.learnOf(s, buf)
			}
		})
		if err != nil {
			return err // compacted, with the revision to resume from
		}
		if len(buf) == 0 {
			due, err := a.waitFor(ctx, wake, beat.C)
			if err == nil && due {
				told, err = after, tell(nil)
			}
			if err != nil {
				return err
			}
			continue
		}
		after = buf[len(buf)-1].Revision
		var items []*pb.Event
		for i := range buf {
			name := a.names.of(buf[i].Keyspace)
			if (r.GetKeyspace() == "" || name == r.GetKeyspace()) && visible(name) {
				items = append(items, a.eventOf(&buf[i], endpoints[i]))
			}
		}
		if len(items) == 0 && after-told < eventsPerMessage {
			continue // nothing for this caller, and not far behind
		}
		if err := tell(items); err != nil {
			return err
		}
		told = after
	}
}

// heartbeatOf is a ticker of what the caller asked for, or one that never ticks.
func heartbeatOf(r *pb.WatchEventsRequest) (*time.Ticker, error) {
	ms := r.GetHeartbeatMs()
	if ms != 0 && (ms < minHeartbeat.Milliseconds() || ms > maxHeartbeat.Milliseconds()) {
		return nil, invalid("heartbeat_ms", strconv.FormatInt(ms, 10), fmt.Sprintf("want 0 (none), or %d to %d", minHeartbeat.Milliseconds(), maxHeartbeat.Milliseconds()))
	}
	if ms == 0 {
		beat := time.NewTicker(maxHeartbeat)
		beat.Stop()
		return beat, nil
	}
	return time.NewTicker(time.Duration(ms) * time.Millisecond), nil
}

// watchFrom checks the request and returns the revision to go on from.
func (a *events) watchFrom(ctx context.Context, r *pb.WatchEventsRequest, wake <-chan struct{}) (uint64, error) {
	deadline := time.NewTimer(aheadFor)
	defer deadline.Stop()
	for {
		var revision uint64
		var err error
		a.cfg.Store.View(func(s *state.State) {
			a.names.learn(s)
			revision = s.Revision()
			err = checkCluster(r.GetClusterId(), s.ClusterID())
		})
		if err != nil {
			return 0, err
		}
		if r.GetKeyspace() != "" {
			err = a.checkKeyspace(r.GetKeyspace())
		}
		behind := r.GetAfterRevision() > revision
		switch {
		case behind:
			err = fail(&pb.ErrorDetail{
				Reason: pb.ReasonCompacted, Field: "after_revision", Value: strconv.FormatUint(r.GetAfterRevision(), 10), Revision: revision,
				Message: fmt.Sprintf("after_revision %d: this server is at %d", r.GetAfterRevision(), revision),
			})
		case err == nil && r.GetAfterRevision() == 0:
			return revision, nil
		case err == nil:
			return r.GetAfterRevision(), nil
		case a.cfg.Store.IsLeader() || status.Code(err) != codes.NotFound:
			return 0, err
		}
		// The caller has seen more at another server: this one is on its way.
		select {
		case <-wake:
		case <-deadline.C:
			return 0, err
		case <-a.stopping:
			return 0, errShuttingDown()
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	}
}

// waitFor returns when something was applied, or when a heartbeat is due.
func (a *events) waitFor(ctx context.Context, wake <-chan struct{}, beat <-chan time.Time) (due bool, err error) {
	select {
	case <-wake:
		return false, nil
	case <-beat:
		return true, nil
	case <-a.stopping:
		return false, errShuttingDown()
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
}

func (a *API) eventOf(ev *state.Event, endpoint string) *pb.Event {
	m := &pb.Event{
		Revision: ev.Revision, Index: ev.Index, Time: timestamppb.New(time.UnixMilli(ev.Wall)),
		Kind: ev.Kind.String(), Keyspace: a.names.of(ev.Keyspace), Worker: ev.Worker, From: ev.From,
		SessionId: uint64(ev.Session), Token: uint64(ev.Token), Cause: causeName(ev.Cause),
		Endpoint: endpoint, KeyspaceId: uint32(ev.Keyspace),
	}
	if aboutPartition(ev.Kind) {
		p := ev.Partition
		m.Partition = &p
	}
	return m
}

// aboutPartition tells kinds of events that have a partition: 0 is one, too.
func aboutPartition(k state.Kind) bool {
	switch k {
	case state.KindGrant, state.KindRelease, state.KindRevoke, state.KindExpire, state.KindDrain, state.KindQuarantine, state.KindRetry:
		return true
	}
	return false
}

// causeName is the word for a cause, "" for none.
func causeName(c state.Cause) string {
	if c == state.CauseNone {
		return ""
	}
	return c.String()
}
