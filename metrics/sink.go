package metrics

import (
	"time"

	gometrics "github.com/hashicorp/go-metrics"
	"github.com/prometheus/client_golang/prometheus"
)

// Sink takes the samples that hashicorp/raft and memberlist send to the
// go-metrics global and passes those on a fixed list to series of a Server; all
// others are dropped. It costs less than go-metrics' own Prometheus sink, its
// series never vanish between samples, and names and labels stay ours.
//
// The global is one per process. A process with several servers must install
// one sink at most; what must not mix is measured by raftstore and ring/gossip
// themselves.
type Sink struct {
	routes map[string]route
}

// route receives one value of an allowed name.
type route func(value float32)

// NewSink returns a sink that feeds s. A nil s makes a sink that drops all.
func NewSink(s *Server) *Sink {
	k := &Sink{routes: make(map[string]route)}
	if s == nil {
		return k
	}
	r, g := s.raft, s.gossip
	// MeasureSince sends milliseconds.
	k.routes["raft.leader.dispatchLog"] = observeMillis(r.dispatch)
	k.routes["raft.rpc.appendEntries"] = observeMillis(r.answer)
	k.routes["raft.thread.main.saturation"] = setTo(r.saturation["main"])
	k.routes["raft.thread.fsm.saturation"] = setTo(r.saturation["fsm"])
	k.routes["raft.fsm.lastRestoreDuration"] = setMillis(r.lastRestore)
	k.routes["raft.transition.leader_lease_timeout"] = addTo(r.leaseLost)
	k.routes["raft.state.candidate"] = addTo(r.elections)
	k.routes["raft.replication.appendEntries.rpc"] = observeMillis(r.replication) // the one without a peer in its name
	k.routes["raft.leader.lastContact"] = observeMillis(r.silence)
	k.routes["raft.transition.heartbeat_timeout"] = addTo(r.heartbeatTimeouts)
	k.routes["raft.replication.installSnapshot"] = countOf(r.snapshotsSent)
	k.routes["raft.rpc.installSnapshot"] = countOf(r.snapshotsReceived)
	k.routes["memberlist.health.score"] = setTo(g.health)
	k.routes["memberlist.queue.broadcasts"] = setTo(g.queue)
	k.routes["memberlist.degraded.probe"] = addTo(g.probeFailures)
	k.routes["memberlist.msg.suspect"] = addTo(g.suspicions)
	k.routes["memberlist.probeNode"] = observeMillis(g.probe)
	k.routes["memberlist.udp.sent"] = addTo(g.bytes["udp_sent"])
	k.routes["memberlist.udp.received"] = addTo(g.bytes["udp_received"])
	k.routes["memberlist.tcp.sent"] = addTo(g.bytes["tcp_sent"])
	return k
}

func observeMillis(h prometheus.Histogram) route {
	return func(v float32) { h.Observe(float64(v) / 1e3) }
}

// countOf counts the samples and forgets their values.
func countOf(c prometheus.Counter) route { return func(float32) { c.Inc() } }
func setMillis(g prometheus.Gauge) route { return func(v float32) { g.Set(float64(v) / 1e3) } }
func setTo(g prometheus.Gauge) route     { return func(v float32) { g.Set(float64(v)) } }
func addTo(c prometheus.Counter) route {
	return func(v float32) {
		if v > 0 {
			c.Add(float64(v))
		}
	}
}

// Install makes k the sink of the process. It must come before raft and
// memberlist are started and replaces an earlier one.
func (k *Sink) Install() error {
	cfg := gometrics.DefaultConfig("")
	cfg.EnableHostname = false
	cfg.EnableHostnameLabel = false
	cfg.EnableRuntimeMetrics = false // would start a goroutine that never ends
	cfg.EnableServiceLabel = false
	cfg.TimerGranularity = time.Millisecond
	_, err := gometrics.NewGlobal(cfg, k)
	return err
}

// maxName bounds the stack buffer; the longest allowed name is shorter.
const maxName = 64

func (k *Sink) send(key []string, value float32) {
	var buf [maxName]byte
	name := buf[:0]
	for i, part := range key {
		if len(name)+1+len(part) > maxName {
			return
		}
		if i > 0 {
			name = append(name, '.')
		}
		name = append(name, part...)
	}
	// A map lookup with a converted key does not allocate.
	if to, ok := k.routes[string(name)]; ok {
		to(value)
	}
}

// SetGauge implements go-metrics' MetricSink, as do the methods below.
func (k *Sink) SetGauge(key []string, v float32) { k.send(key, v) }

// SetGaugeWithLabels drops the labels.
func (k *Sink) SetGaugeWithLabels(key []string, v float32, _ []gometrics.Label) { k.send(key, v) }

// EmitKey is ignored; neither library uses it.
func (k *Sink) EmitKey([]string, float32) {}

// IncrCounter adds to a counter on the list.
func (k *Sink) IncrCounter(key []string, v float32) { k.send(key, v) }

// IncrCounterWithLabels drops the labels.
func (k *Sink) IncrCounterWithLabels(key []string, v float32, _ []gometrics.Label) { k.send(key, v) }

// AddSample records a sample on the list.
func (k *Sink) AddSample(key []string, v float32) { k.send(key, v) }

// AddSampleWithLabels drops the labels.
func (k *Sink) AddSampleWithLabels(key []string, v float32, _ []gometrics.Label) { k.send(key, v) }
