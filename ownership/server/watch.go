package server

import (
	"context"
	"time"

	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/leasehold-dev/leasehold/metrics"
	"github.com/leasehold-dev/leasehold/raftstore/state"
	"github.com/leasehold-dev/leasehold/ring/gossip"
)

// watchInterval is how often figures and readiness are looked at, and how often
// a server that has not formed looks at the others.
const watchInterval = 250 * time.Millisecond

// Every so many of these rounds the data directory is looked at, for as long as
// that, should its disk be slow.
const (
	storageEvery    = 40
	storagePatience = 20 * time.Millisecond
)

// watch is the one goroutine that forms the cluster, tells others what this
// server is, keeps readiness up and counts what passes with time. It ends by
// itself only when this server's id belongs to another.
func (s *Server) watch(ctx context.Context) error {
	tick := time.NewTicker(watchInterval * time.Duration(max(s.cfg.hooks.pace, 1)))
	defer tick.Stop()
	last := time.Now()
	var meeting chan error // of a twin, nil: none
	unformed := ""         // why, as the log was told last
	defer func() {
		if meeting != nil {
			<-meeting //nolint:errcheck // ends with ctx at the latest; its answer is looked at where it matters
		}
	}()
	for round := 0; ; round++ {
		if !s.store.HasState() {
			if err := s.form(ctx); err != nil && err.Error() != unformed {
				unformed = err.Error()
				s.log.Warn("cluster was not formed, trying again", "error", err)
			}
		}
		s.announce()
		s.follow(ctx)
		s.watchCertificates(time.Now())
		s.observe(time.Since(last))
		last = time.Now()
		if round%storageEvery == 0 {
			s.metrics.Raft().ObserveStorage(storageFigures(s.storage(storagePatience)))
		}
		select {
		case <-ctx.Done():
			return nil
		case addr := <-s.twins:
			if meeting == nil {
				meeting = make(chan error, 1)
				go func() { meeting <- s.meetTwin(ctx, addr) }()
			}
		case err := <-meeting:
			meeting = nil
			if err != nil {
				return err
			}
		case <-s.gossipChanged:
			s.controller.Poke()
		case <-tick.C:
		}
	}
}

// announce tells the others what this server has become: once it has state no
// cluster is to be formed with it, and once its cluster is known gossip refuses
// members of others, and is refused by them.
func (s *Server) announce() {
	state, cluster := s.store.HasState(), s.store.ClusterID()
	s.tell(func(m *gossip.Meta) { m.HasState, m.ClusterID = state, cluster }) // nothing new is not sent
}

// observe sets the gauges, counts the time that partitions had no owner, and
// keeps readiness up. Every server does so from its own state: without a
// leader the figures go on.
func (s *Server) observe(elapsed time.Duration) {
	var (
		all                     []metrics.Keyspace
		active, leaving, barred int
	)
	s.store.View(func(st *state.State) {
		for k := range st.Keyspaces() {
			all = append(all, metrics.Keyspace{
				Name:  k.Name,
				TTL:   k.Settings.TTL,
				Owned: k.Owned - k.Draining, Draining: k.Draining, Quarantined: k.Quarantined,
				Unowned: int(k.Partitions) - k.Owned - k.Quarantined,
			})
		}
		for sess := range st.Sessions() {
			if sess.Worker == "" {
				continue
			}
			switch sess.State {
			case state.SessionLive:
				active++
			case state.SessionLeaving:
				leaving++
			default:
				barred++
			}
		}
		// Here, so that no grant of a keyspace that is newer than the list comes before
		// it is worked through: the series would be dropped with what it has counted.
		s.metrics.ObserveKeyspaces(elapsed, all)
	})
	s.metrics.Sessions(active, leaving, barred)
	s.metrics.Raft().Observe(raftFigures(s.store.Status()))
	s.etcd.Observe()
	if f := s.finding.Swap(nil); f != nil {
		s.log.Error("the audit of the log found what must not be: keep the data directories and tell the maintainers", "finding", f.String())
	}
	attached, pause := s.api.WorkerFigures()
	s.metrics.Attached(attached)
	s.metrics.WorkersPaused(pause.Seconds())
	ready, _ := s.Readiness()
	s.metrics.Ready(ready)
	status := healthpb.HealthCheckResponse_NOT_SERVING
	if ready {
		status = healthpb.HealthCheckResponse_SERVING
		s.readyOnce.Do(func() { close(s.ready) })
	}
	for _, name := range healthServices {
		s.health.SetServingStatus(name, status)
	}
}
