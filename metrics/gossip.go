package metrics

import "github.com/prometheus/client_golang/prometheus"

// Gossip holds the series of gossip as one server sees it. It belongs to a
// Server, and is what ring/gossip calls through its Observer.
type Gossip struct {
	members   gauges
	rejected  counters
	rejoins   counters
	conflicts prometheus.Counter
	udp       prometheus.Counter
	probes    counters

	health        prometheus.Gauge
	queue         prometheus.Gauge
	probeFailures prometheus.Counter
	suspicions    prometheus.Counter
	bounces       prometheus.Counter
	probe         prometheus.Histogram
	bytes         counters // by direction
}

func (g *Gossip) add(s *set) {
	g.members = s.gauges("gossip_members", "Members by what this server believes of them, itself included.",
		"state", "alive", "leaving", "left", "dead")
	g.rejected = s.counters("gossip_rejected_packets_total", "Packets and streams that were thrown away, by reason.",
		"reason", "label", "decrypt", "decode", "stranger", "overflow", "size")
	g.rejoins = s.known("gossip_rejoins_total", "Attempts to reach a member that should be there and is not, by outcome.",
		"outcome", "ok", "failed")
	g.conflicts = s.counter("gossip_conflicts_total", "Times two addresses claimed one member's name.")
	g.udp = s.counter("gossip_udp_failures_total", "Times a member answered over TCP and not over UDP: packets are dropped on the way.")
	g.probes = s.known("gossip_probes_total", "Direct questions whether a member lives, asked when its stream broke, by outcome.",
		"outcome", "answered", "silent")
	g.health = s.gauge("gossip_health_score", "How badly this server keeps up with gossip's timing; 0 is healthy.")
	g.queue = s.gauge("gossip_queue_depth", "Messages waiting to be gossiped.")
	g.probeFailures = s.counter("gossip_probe_failures_total", "Routine probes that nobody answered, directly or through others.")
	g.probe = s.histogram("gossip_probe_duration_seconds", "Time a routine probe of a member took, its indirect questions included.",
		[]float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1})
	g.bytes = s.known("gossip_bytes_total", "Bytes of gossip, by transport and direction; what arrives over TCP is not measured.",
		"direction", "udp_sent", "udp_received", "tcp_sent")
	g.bounces = s.counter("gossip_bounces_total", "Times a member that had been taken for dead was there after all.")
	g.suspicions = s.counter("gossip_suspicions_total", "Times a member was suspected of being dead.")
}

// Members sets how many members there are in each state.
func (g *Gossip) Members(alive, leaving, left, dead int) {
	if g == nil {
		return
	}
	g.members["alive"].Set(float64(alive))
	g.members["leaving"].Set(float64(leaving))
	g.members["left"].Set(float64(left))
	g.members["dead"].Set(float64(dead))
}

// Rejected counts a packet or stream that was thrown away: label, decrypt,
// decode, stranger, overflow or size.
func (g *Gossip) Rejected(reason string) {
	if g != nil {
		g.rejected.add(reason, 1)
	}
}

// Rejoined counts an attempt to reach a missing member.
func (g *Gossip) Rejoined(ok bool) {
	if g == nil {
		return
	}
	if ok {
		g.rejoins.add("ok", 1)
	} else {
		g.rejoins.add("failed", 1)
	}
}

// Conflict counts two addresses that claim one name.
func (g *Gossip) Conflict() {
	if g != nil {
		g.conflicts.Inc()
	}
}

// UDPFailed counts that a member answered over TCP and not over UDP.
func (g *Gossip) UDPFailed() {
	if g != nil {
		g.udp.Inc()
	}
}

// Bounced counts a member that was dead for a while and lived.
func (g *Gossip) Bounced() {
	if g != nil {
		g.bounces.Inc()
	}
}

// Probed counts one finished question for a sign of life.
func (g *Gossip) Probed(answered bool) {
	if g == nil {
		return
	}
	if answered {
		g.probes.add("answered", 1)
	} else {
		g.probes.add("silent", 1)
	}
}
