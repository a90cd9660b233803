package api

import (
	"context"
	"slices"

	pb "github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"github.com/leasehold-dev/leasehold/raftstore/state"
	"github.com/leasehold-dev/leasehold/ring/gossip"
)

// workers is WorkerService.
type workers struct {
	pb.UnimplementedWorkerServiceServer
	*API
}

func (a *workers) ListWorkers(ctx context.Context, r *pb.ListWorkersRequest) (*pb.ListWorkersResponse, error) {
	resp := &pb.ListWorkersResponse{}
	visible := sees(ctx)
	err := a.read(ctx, r.GetStale(), func(s *state.State) {
		for w := range s.Workers() {
			resp.Items = addVisible(resp.Items, workerOf(s, w), visible)
		}
		// Sessions that are not their worker's present one any more, and still
		// hold what nobody else may have.
		for sess := range s.Sessions() {
			if w, ok := s.Worker(sess.Worker); ok && w.Session != sess.ID {
				resp.Items = addVisible(resp.Items, sessionOf(s, sess), visible)
			}
		}
	})
	if err != nil {
		return nil, err
	}
	for _, m := range resp.Items {
		a.addLive(m)
	}
	return resp, nil
}

// addVisible appends a worker with those of its keyspaces that the caller may see,
// unless there are none. One that is gone is nobody's but those who see everything.
func addVisible(items []*pb.Worker, m *pb.Worker, visible func(keyspace string) bool) []*pb.Worker {
	m.Keyspaces = slices.DeleteFunc(m.Keyspaces, func(name string) bool { return !visible(name) })
	if len(m.Keyspaces) == 0 && !visible("") {
		return items
	}
	return append(items, m)
}

func (a *workers) DrainWorker(ctx context.Context, r *pb.DrainWorkerRequest) (*pb.Worker, error) {
	return a.after(ctx, r.GetId(), &state.BarWorker{Worker: r.GetId(), Drained: true})
}

func (a *workers) UndrainWorker(ctx context.Context, r *pb.UndrainWorkerRequest) (*pb.Worker, error) {
	return a.after(ctx, r.GetId(), &state.BarWorker{Worker: r.GetId()})
}

func (a *workers) EvictWorker(ctx context.Context, r *pb.EvictWorkerRequest) (*pb.Worker, error) {
	return a.after(ctx, r.GetId(), &state.Evict{Worker: r.GetId()})
}

// after does something about one worker and answers with what it then is.
func (a *workers) after(ctx context.Context, id string, cmd state.Command) (*pb.Worker, error) {
	if err := checkName("id", id); err != nil {
		return nil, err
	}
	err := a.propose(ctx, cmd)
	if state.ReasonOf(err) == state.ReasonNotFound {
		return nil, notFound("worker", "id", id)
	}
	if err != nil {
		return nil, err
	}
	m := &pb.Worker{Id: id, State: "gone"}
	a.cfg.Store.View(func(s *state.State) {
		if w, ok := s.Worker(id); ok {
			m = workerOf(s, w)
		}
	})
	a.addLive(m)
	return m, nil
}

// addLive adds what is not in the state: the stream and gossip.
func (a *workers) addLive(m *pb.Worker) {
	if st := a.hub.attached(state.SessionID(m.GetSessionId())); st != nil {
		m.Attached = true
		said := st.says()
		m.Running, m.Overruns, m.Version = int64(said.running), said.overruns, st.program
		m.LongestPauseMs = said.longestPause
		m.FencingChecks, m.FencingRejections = said.fencingChecks, said.fencingRejections
	}
	if m.GetGossip() == "off" || m.GetSessionId() == 0 {
		return
	}
	m.Gossip = "unknown"
	if g, ok := a.member(gossip.RoleWorker, m.GetId()); ok {
		m.Gossip = g.Status.String()
	}
}

func workerOf(s *state.State, w *state.Worker) *pb.Worker {
	sess, ok := s.Session(w.Session)
	if !ok {
		return &pb.Worker{Id: w.ID, Incarnation: w.Incarnation, State: "gone", Draining: w.Drained}
	}
	m := sessionOf(s, sess)
	m.Draining = w.Drained
	return m
}

func sessionOf(s *state.State, sess *state.Session) *pb.Worker {
	m := &pb.Worker{
		Id: sess.Worker, SessionId: uint64(sess.ID), Incarnation: sess.Incarnation,
		Endpoint: sess.Endpoint, Zone: sess.Zone, Capacity: sess.Capacity, Addr: sess.Addr,
		Owner: sess.Owner,
		TtlMs: sess.TTL.Milliseconds(), State: sess.State.String(), Held: int64(sess.Held),
		RemainingMs: min(sess.TTL, max(0, sess.Deadline-s.Now())).Milliseconds(),
	}
	if len(sess.Labels) > 0 {
		m.Labels = make(map[string]string, len(sess.Labels))
		for k, v := range sess.Labels {
			m.Labels[k] = v
		}
	}
	for _, id := range sess.Keyspaces {
		if ks, ok := s.Keyspace(id); ok {
			m.Keyspaces = append(m.Keyspaces, ks.Name)
		}
	}
	if !sess.Gossip {
		m.Gossip = "off"
	}
	return m
}
