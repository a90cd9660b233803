package dashboards

// The service level that the burn rate is measured against: of all
// partition-seconds, 1 in 10,000 may be without an owner.
var overview = board{
	name:  "overview",
	title: "Leasehold / Overview",
	about: "Is all work owned, by whom, what has changed, and is there anything that must never be.",
	rows: []row{
		{"Is work owned?", []panel{
			{
				kind: number, title: "Unowned now", unit: "none", width: 5, limits: limits{warn: 1}, more: "ownership",
				about: "Partitions that nobody works on. Above 0 for seconds after a crash, at most the TTL and a second. For longer: no worker has joined, none has room, or there is no leader; `leasehold partitions show K/N --why` tells.",
				queries: []query{{
					`sum by (cluster) (max by (cluster, keyspace) (leasehold_partitions{@k,state="unowned"}))`, "{{cluster}}"}},
			},
			{
				kind: number, title: "Owned, 30 days", unit: "percentunit", width: 5, limits: limits{warn: 0.9999, bad: 0.999, low: true}, more: "ownership",
				about: "Share of all partition-seconds of the last 30 days that had an owner. While Prometheus has less than 30 days of it, the time before counts as owned.",
				queries: []query{{
					`1 - sum by (cluster) (max by (cluster, keyspace) (increase(leasehold_partition_unowned_seconds_total{@k}[30d]))) / (30 * 86400 * sum by (cluster) (max by (cluster, keyspace) (leasehold_partitions_configured{@k})))`, "{{cluster}}"}},
			},
			{
				kind: number, title: "Budget burn, 1 h", unit: "none", width: 5, limits: limits{warn: 1, bad: 14.4}, more: "ownership",
				about: "How many times faster than allowed the last hour was without owners, where 99.99 % owned is allowed. At 14.4 a budget of 30 days is gone in two.",
				queries: []query{{
					`sum by (cluster) (max by (cluster, keyspace) (rate(leasehold_partition_unowned_seconds_total{@k}[1h]))) / sum by (cluster) (max by (cluster, keyspace) (leasehold_partitions_configured{@k})) / 0.0001`, "{{cluster}}"}},
			},
			{
				kind: lines, title: "Share without an owner", unit: "percentunit", width: 9, more: "ownership",
				about: "Partition-seconds without an owner over all partition-seconds, for each keyspace. Every server counts them, so the line goes on while there is no leader.",
				queries: []query{{
					`max by (cluster, keyspace) (rate(leasehold_partition_unowned_seconds_total{@k}[$__rate_interval])) / max by (cluster, keyspace) (leasehold_partitions_configured{@k} > 0)`, "{{cluster}} {{keyspace}}"}},
			},
		}},
		{"Who owns?", []panel{
			{
				kind: stacked, title: "Partitions by state", unit: "none", width: 10, more: "ownership",
				about: "All partitions of the chosen keyspaces. Draining ones are still owned; blocked ones may be given to nobody, quarantined after failures or paused.",
				looks: []look{{word: "owned", colour: "green"}, {word: "draining", colour: "orange"}, {word: "unowned", colour: "red"}, {word: "quarantined", colour: "purple"}},
				queries: []query{{
					`sum by (cluster, state) (max by (cluster, keyspace, state) (leasehold_partitions{@k}))`, "{{cluster}} {{state}}"}},
			},
			{
				kind: stacked, title: "Workers by state", unit: "none", width: 7, more: "workers",
				about: "Sessions of workers: active, leaving, and barred ones that may only wait for their end.",
				looks: []look{{word: "active", colour: "green"}, {word: "leaving", colour: "orange"}, {word: "barred", colour: "red"}},
				queries: []query{{
					`max by (cluster, state) (leasehold_sessions{@})`, "{{cluster}} {{state}}"}},
			},
			{
				kind: lines, title: "Imbalance", unit: "none", width: 7, limits: limits{warn: 1.1, bad: 1.5}, more: "ownership",
				about: "Load of the fullest worker over its fair share, the worst keyspace. Above 1.1 the controller moves partitions as soon as things are quiet; few partitions for each worker cannot be shared evenly.",
				queries: []query{{
					`max by (cluster) (leasehold_ring_imbalance_ratio{@})`, "{{cluster}}"}},
			},
		}},
		{"What changed?", []panel{
			{
				kind: bars, title: "Moves by reason", unit: "none", width: 10, more: "ownership",
				about: "Partitions that got another owner, in each interval. Many of crash or expired: workers die or cannot renew. Many of balance: workers come and go.",
				queries: []query{{
					`sum by (cluster, reason) (increase(leasehold_partition_moves_total{@}[$__rate_interval]))`, "{{cluster}} {{reason}}"}},
			},
			{
				kind: states, title: "Leader", unit: "none", width: 7, on: "leads", off: "follows", more: "servers",
				about: "Which server leads. No line that leads: nothing is granted, and owners end at their deadlines.",
				queries: []query{{
					`max by (cluster, instance) (leasehold_raft_is_leader{@})`, "{{instance}}"}},
			},
			{
				kind: stacked, title: "Servers by version", unit: "none", width: 7, more: "servers",
				about: "Servers that answer Prometheus, by the version they run. Two versions only during an upgrade.",
				queries: []query{{
					`count by (cluster, version) (leasehold_build_info{@})`, "{{cluster}} {{version}}"}},
			},
		}},
		{"What must never be?", []panel{
			{
				kind: number, title: "Broken promises", unit: "none", width: 7, limits: never, more: "ownership",
				about: "Found by the audit of every grant in the time shown: two owners at once, tokens that did not rise, ends of leases that were not there. Not 0 is a matter of data: stop writers at the resource, run `leasehold debug`, and restart nothing.",
				queries: []query{
					{`max by (cluster) (increase(leasehold_audit_overlap_total{@}[$__range]))`, "{{cluster}} overlaps"},
					{`max by (cluster) (increase(leasehold_audit_token_regression_total{@}[$__range]))`, "{{cluster}} tokens not rising"},
					{`max by (cluster) (increase(leasehold_audit_unmatched_ends_total{@}[$__range]))`, "{{cluster}} unmatched ends"},
				},
			},
			{
				kind: number, title: "Work past its end", unit: "none", width: 6, limits: limits{warn: 1}, more: "workers",
				about: "In the time shown: writes refused by a guard, handlers that ran on after their lease; and planned moves that are stuck now because a handler does not return.",
				queries: []query{
					{`sum by (cluster) (increase(leasehold_fencing_rejections_total{@}[$__range]))`, "{{cluster}} refused"},
					{`sum by (cluster) (increase(leasehold_overruns_total{@}[$__range]))`, "{{cluster}} overruns"},
					{`max by (cluster) (leasehold_handoffs_stuck{@})`, "{{cluster}} stuck"},
				},
			},
			{
				kind: number, title: "Servers in trouble", unit: "none", width: 6, limits: never, more: "servers",
				about: "Servers that Prometheus cannot reach, that are not ready, and whose storage has failed for good. With three servers one may be missing; each of these needs a look.",
				queries: []query{
					{`count by (cluster) (up{@,job="leasehold-server"} == 0) or 0 * max by (cluster) (up{@,job="leasehold-server"})`, "{{cluster}} down"},
					{`count by (cluster) (leasehold_ready{@} == 0) or 0 * max by (cluster) (leasehold_ready{@})`, "{{cluster}} not ready"},
					{`count by (cluster) (leasehold_storage_poisoned{@} == 1) or 0 * max by (cluster) (leasehold_storage_poisoned{@})`, "{{cluster}} poisoned"},
				},
			},
			{
				kind: number, title: "Alerts that fire", unit: "none", width: 5, limits: never,
				about: "Alerts of deploy/prometheus that fire now, by name; 0 when none does. Each has a runbook.",
				queries: []query{{
					`count by (alertname) (ALERTS{@,alertstate="firing",alertname=~"Leasehold.+"}) or absent(ALERTS{@,alertstate="firing",alertname=~"Leasehold.+"}) - 1`, "{{alertname}}"}},
			},
		}},
	},
}
