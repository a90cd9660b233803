package metrics

import (
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// ServerConfig says what build_info shows.
type ServerConfig struct {
	// Version is the release, "dev" when empty.
	Version string
	// Revision is the commit that was built, "unknown" when empty.
	Revision string
}

// Server holds the series of one server process. Make it with NewServer.
type Server struct {
	set    set
	raft   *Raft
	gossip *Gossip
	keys   keys
	calls  calls
	audit  audit
	access accesses

	keyspaces *keyspaces

	grantsRefused prometheus.Counter
	moves         counters
	takeover      histograms
	handoff       histograms
	plannedMoves  prometheus.Gauge
	stuckDrains   prometheus.Gauge
	imbalance     prometheus.Gauge
	settingsRead  prometheus.Gauge

	ready           prometheus.Gauge
	sessions        gauges
	attached        prometheus.Gauge
	sessionsOpened  prometheus.Counter
	sessionsExpired counters
	expiryOverdue   prometheus.Histogram
	renewals        counters
	margin          prometheus.Histogram
	reported        reported
}

// NewServer makes the series and registers them with reg; with a nil reg they
// are left for the caller to register (a Server is a prometheus.Collector). It
// panics when reg holds them already, as MustRegister does.
func NewServer(reg prometheus.Registerer, cfg ServerConfig) *Server {
	s := &Server{raft: &Raft{}, gossip: &Gossip{}}
	s.set.buildInfo(cfg)
	s.settingsRead = s.set.gauge("config_last_reload_success_timestamp_seconds",
		"When the settings in use were read: at the start, or by the last reload that was not refused.")
	s.ready = s.set.gauge("ready", "1 while this server serves: it has a leader and has caught up.")
	s.addOwnership()
	s.audit.add(&s.set)
	s.addSessions()
	s.reported.add(&s.set)
	s.calls.add(&s.set)
	s.raft.add(&s.set)
	s.gossip.add(&s.set)
	s.keys.add(&s.set)
	s.access.add(&s.set)
	if reg != nil {
		reg.MustRegister(s)
	}
	return s
}

func (s *set) buildInfo(cfg ServerConfig) {
	if cfg.Version == "" {
		cfg.Version = "dev"
	}
	if cfg.Revision == "" {
		cfg.Revision = "unknown"
	}
	s.gaugeVec("build_info", "Always 1; the labels tell what is running.", "version", "revision", "goversion").
		WithLabelValues(cfg.Version, cfg.Revision, runtime.Version()).Set(1)
}

func (s *Server) addOwnership() {
	s.keyspaces = newKeyspaces(&s.set)
	s.grantsRefused = s.set.counter("lease_grants_refused_total",
		"Grants that the log refused because the lease, the session or the token had changed meanwhile; counted by the leader.")
	s.moves = s.set.counters("partition_moves_total",
		"Partitions granted to another worker than the one before, by reason; counted by the leader.", "reason",
		"initial", "join", "leave", "restart", "expired", "crash", "drain", "balance", "operator",
		"superseded", "evicted", "yield", "failed", "timeout", "retry")
	s.takeover = s.set.histograms("takeover_duration_seconds",
		"Time a partition was without an owner, from the end of one lease to the next grant, by why the first ended; counted by the leader.",
		"cause", changeBuckets, "crash", "expired", "leave", other)
	s.handoff = s.set.histograms("handoff_duration_seconds",
		"Time a planned move took, by phase: drain from the request to the release, total to the next grant; counted by the leader.",
		"phase", changeBuckets, "drain", "total")
	s.plannedMoves = s.set.gauge("rebalance_planned_moves", "Balance moves that are still to come; known to the leader.")
	s.stuckDrains = s.set.gauge("handoffs_stuck", "Strict handoffs past their timeout whose handler has not returned; known to the leader.")
	s.imbalance = s.set.gauge("ring_imbalance_ratio", "Greatest load of a worker over its fair share, the worst of all keyspaces; known to the leader.")
}

func (s *Server) addSessions() {
	s.sessions = s.set.gauges("sessions",
		"Sessions in the replicated state: active ones, leaving ones, and barred ones that may only wait for their end.",
		"state", "active", "leaving", "barred")
	s.attached = s.set.gauge("sessions_attached", "Sessions whose worker has its stream at this server; 0 on servers that do not lead.")
	s.sessionsOpened = s.set.counter("sessions_opened_total", "Sessions opened.")
	s.sessionsExpired = s.set.counters("sessions_expired_total",
		"Sessions that ended without being closed by their worker, by cause.", "cause",
		"ttl", "superseded", "evicted", "revoke")
	s.expiryOverdue = s.set.histogram("expiry_overdue_seconds",
		"Time from the moment a session's TTL was over to the log entry that ended it; counted by the leader.",
		[]float64{.025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30})
	s.renewals = s.set.known("lease_renewals_total",
		"Keep-alives that this server put into the log as leader, by outcome: renewed, refused by the state, failed to commit.", "outcome",
		"renewed", "refused", "failed")
	s.margin = s.set.histogram("lease_renewal_margin_ratio",
		"Share of the TTL that a worker's session had left when its keep-alive was committed; counted by the leader from the second one on.", marginBuckets)
}

// SettingsRead is told when settings came into use.
func (s *Server) SettingsRead(at time.Time) {
	if s != nil {
		s.settingsRead.Set(float64(at.UnixMilli()) / 1000)
	}
}

// Describe implements prometheus.Collector.
func (s *Server) Describe(ch chan<- *prometheus.Desc) { s.set.Describe(ch) }

// Collect implements prometheus.Collector.
func (s *Server) Collect(ch chan<- prometheus.Metric) { s.set.Collect(ch) }

// Raft returns the series of the Raft group; nil for a nil Server.
func (s *Server) Raft() *Raft {
	if s == nil {
		return nil
	}
	return s.raft
}

// Gossip returns the series of gossip; nil for a nil Server.
func (s *Server) Gossip() *Gossip {
	if s == nil {
		return nil
	}
	return s.gossip
}

// ObserveKeyspaces sets the partition gauges from the whole list of keyspaces
// and adds what has been unowned during elapsed, the time on the boot clock
// since the previous call. Every server calls it about once a second from its
// own copy of the state, leader or not: the figure must go on growing exactly
// while there is no leader. Keyspaces that are no longer listed lose their
// series.
func (s *Server) ObserveKeyspaces(elapsed time.Duration, all []Keyspace) {
	if s != nil {
		s.keyspaces.observe(elapsed, all)
	}
}

// Granted counts n grants in a keyspace that the log accepted.
func (s *Server) Granted(keyspace string, n int) {
	if s != nil {
		s.keyspaces.granted(keyspace, n)
	}
}

// GrantsRefused counts n grants that the log refused.
func (s *Server) GrantsRefused(n int) {
	if s != nil && n > 0 {
		s.grantsRefused.Add(float64(n))
	}
}

// Moved counts n partitions that changed their owner for a reason.
func (s *Server) Moved(reason string, n int) {
	if s != nil {
		s.moves.add(reason, n)
	}
}

// Takeover records how long one partition was without an owner.
func (s *Server) Takeover(cause string, d time.Duration) {
	if s != nil {
		s.takeover.observe(cause, d)
	}
}

// Handoff records one phase (drain or total) of one planned move.
func (s *Server) Handoff(phase string, d time.Duration) {
	if s != nil {
		s.handoff.observe(phase, d)
	}
}

// Planned sets what the leader's planner knows: balance moves to come, drains
// past their timeout, and the worst ratio of load to fair share. A server that
// does not lead sets zeroes.
func (s *Server) Planned(moves, stuck int, imbalance float64) {
	if s == nil {
		return
	}
	s.plannedMoves.Set(float64(moves))
	s.stuckDrains.Set(float64(stuck))
	s.imbalance.Set(imbalance)
}

// Sessions sets how many sessions the state holds.
func (s *Server) Sessions(active, leaving, barred int) {
	if s == nil {
		return
	}
	s.sessions["active"].Set(float64(active))
	s.sessions["leaving"].Set(float64(leaving))
	s.sessions["barred"].Set(float64(barred))
}

// SessionOpened counts a session.
func (s *Server) SessionOpened() {
	if s != nil {
		s.sessionsOpened.Inc()
	}
}

// SessionExpired counts a session that ended otherwise than by its worker's
// wish: ttl, superseded, evicted or revoke.
func (s *Server) SessionExpired(cause string) {
	if s != nil {
		s.sessionsExpired.add(cause, 1)
	}
}

// ExpiryOverdue records how long after its TTL a session was ended.
func (s *Server) ExpiryOverdue(d time.Duration) {
	if s != nil {
		s.expiryOverdue.Observe(d.Seconds())
	}
}

// KeepAlives counts n keep-alives that ended the same way: renewed, refused
// (by the state) or failed (not committed).
func (s *Server) KeepAlives(outcome string, n int) {
	if s != nil {
		s.renewals.add(outcome, n)
	}
}

// Renewed records what was left of a session's TTL when a keep-alive had been
// committed, and the TTL.
func (s *Server) Renewed(left, ttl time.Duration) {
	if s != nil && ttl > 0 {
		s.margin.Observe(max(0, left.Seconds()/ttl.Seconds()))
	}
}

// Attached sets how many sessions have their stream here.
func (s *Server) Attached(n int) {
	if s != nil {
		s.attached.Set(float64(n))
	}
}

// Ready sets whether this server serves.
func (s *Server) Ready(on bool) {
	if s != nil {
		boolGauge(s.ready, on)
	}
}
