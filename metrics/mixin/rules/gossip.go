package rules

import "time"

// gossip is about what servers and workers know of each other.
func gossip() Group {
	return Group{
		Name: "leasehold-gossip",
		Alerts: []Alert{
			{
				Name: "LeaseholdGossipMembersMismatch", For: 10 * time.Minute, Severity: Warning,
				Expr: `max by (cluster) (leasehold_gossip_members{state="alive"})
-
min by (cluster) (leasehold_gossip_members{state="alive"}) > 0`,
				Summary:     "Servers see different members in gossip",
				Description: `One server sees {{ $value }} living members fewer than another. Dead workers are noticed late, when their TTL is over.`,
			},
			{
				Name: "LeaseholdGossipUDPBlocked", For: 15 * time.Minute, Severity: Warning,
				Expr:        `sum by (cluster, instance) (rate(leasehold_gossip_udp_failures_total[$10m])) > 0.01`,
				Summary:     "UDP of gossip is blocked",
				Description: `Members answer {{ $labels.instance }} over TCP and not over UDP, {{ $value | humanize }} times a second.`,
			},
			{
				Name: "LeaseholdGossipRejects", For: 10 * time.Minute, Severity: Warning,
				Expr:        `sum by (cluster, reason) (rate(leasehold_gossip_rejected_packets_total{reason=~"decrypt|label|stranger"}[$5m])) > 0`,
				Summary:     "Strangers speak on the gossip port",
				Description: `{{ $value | humanize }} packets a second are thrown away ({{ $labels.reason }}): somebody has another key, another label or belongs to another cluster.`,
			},
		},
	}
}
