package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// calls are the series of what clients ask this server, over either API.
type calls struct {
	requests    map[string]map[string]counters // by api and call
	durations   map[string]histograms          // by api; kind read or write
	connections gauges
	events      prometheus.Gauge
}

// Calls and outcomes that are told apart. Native admin
// calls are those about keyspaces, workers, the ring and the cluster.
var (
	nativeCalls  = []string{"attach", "keep_alive", "partition", "coordination", "event", "admin"}
	etcdCalls    = []string{"range", "put", "delete", "txn", "compact", "lease", "watch", "lock"}
	callOutcomes = []string{"ok", "refused", "unavailable"}
)

func (c *calls) add(s *set) {
	v := s.counterVec("rpc_requests_total",
		"Calls answered by this server, by API, what they are about and how they ended: unavailable is what another try may mend. One that was passed on to the leader counts at both.",
		"api", "call", "outcome")
	h := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Namespace: namespace, Name: "rpc_duration_seconds", Buckets: []float64{.001, .005, .01, .025, .05, .1, .25, 1, 5},
		Help: "Time a call took, by API and whether it changes anything; without streams and calls that wait for something.",
	}, []string{"api", "kind"})
	*s = append(*s, h)
	c.requests, c.durations = map[string]map[string]counters{}, map[string]histograms{}
	for api, names := range map[string][]string{"native": nativeCalls, "etcd": etcdCalls} {
		c.requests[api] = map[string]counters{}
		for _, call := range append(names[:len(names):len(names)], other) {
			c.requests[api][call] = counters{}
			for _, outcome := range callOutcomes {
				c.requests[api][call][outcome] = v.WithLabelValues(api, call, outcome)
			}
		}
		c.durations[api] = histograms{}
		for _, kind := range []string{"read", "write"} {
			c.durations[api][kind] = h.WithLabelValues(api, kind)
		}
	}
	c.connections = s.gauges("connections", "Open connections, by listener.", "listener", "grpc", "http", "raft")
	c.events = s.gauge("event_watchers", "Streams of events that this server serves.")
}

// Call counts a call of an API (native or etcd). A call that is not listed is
// counted as other, an outcome that is not as unavailable; an unknown API is
// ignored.
func (s *Server) Call(api, call, outcome string) {
	if s == nil {
		return
	}
	byCall, ok := s.calls.requests[api]
	if !ok {
		return
	}
	byOutcome, ok := byCall[call]
	if !ok {
		byOutcome = byCall[other]
	}
	c, ok := byOutcome[outcome]
	if !ok {
		c = byOutcome["unavailable"]
	}
	c.Inc()
}

// CallTook records how long a call of an API took; kind is read or write.
func (s *Server) CallTook(api, kind string, d time.Duration) {
	if s != nil {
		s.calls.durations[api].observe(kind, d)
	}
}

// Connected counts a connection of a listener (grpc, http or raft) in, or with -1 out.
func (s *Server) Connected(listener string, n int) {
	if s == nil {
		return
	}
	if g, ok := s.calls.connections[listener]; ok {
		g.Add(float64(n))
	}
}

// EventWatcher counts a stream of events in, or with -1 out.
func (s *Server) EventWatcher(n int) {
	if s != nil {
		s.calls.events.Add(float64(n))
	}
}
