package dashboards

var ownership = board{
	name:  "ownership",
	title: "Leasehold / Ownership",
	about: "How fast and how often partitions change their owner, whether the load is even, and the proof that no two owners worked at once.",
	rows: []row{
		{"How long is work without an owner?", []panel{
			{
				kind: heat, title: "Time to a new owner", unit: "s", width: 9,
				about: "How long partitions were without an owner before the next grant, each in its own time. Clean leaves are in the lowest rows; after a crash of a strict keyspace's worker it is near the TTL, as it must be.",
				queries: []query{{
					`sum by (le) (increase(leasehold_takeover_duration_seconds_bucket{@}[$__rate_interval]))`, "{{le}}"}},
			},
			{
				kind: lines, title: "Time to a new owner beside the TTL", unit: "s", width: 8,
				about: "Half and nearly all of the takeovers, and the TTL of each keyspace. The promise for a crash is the TTL and a second in strict keyspaces; p99 above that: look at leader changes and at commit times.",
				looks: []look{{word: "TTL", dashed: true}},
				queries: []query{
					{`histogram_quantile(0.5, sum by (cluster, le) (rate(leasehold_takeover_duration_seconds_bucket{@}[$__rate_interval])))`, "{{cluster}} p50"},
					{`histogram_quantile(0.99, sum by (cluster, le) (rate(leasehold_takeover_duration_seconds_bucket{@}[$__rate_interval])))`, "{{cluster}} p99"},
					{`max by (cluster, keyspace) (leasehold_lease_ttl_seconds{@k} > 0)`, "{{cluster}} {{keyspace}} TTL"},
				},
			},
			{
				kind: stacked, title: "Partitions without an owner", unit: "none", width: 7,
				about: "On average over each interval, so that also a gap too short for the state in a scrape shows. What is quarantined counts too.",
				queries: []query{{
					`max by (cluster, keyspace) (rate(leasehold_partition_unowned_seconds_total{@k}[$__rate_interval]))`, "{{cluster}} {{keyspace}}"}},
			},
		}},
		{"Why do partitions move?", []panel{
			{
				kind: bars, title: "Moves by reason", unit: "none", width: 9,
				about: "Partitions that got another owner in each interval. `leasehold events --cause REASON` lists them.",
				queries: []query{{
					`sum by (cluster, reason) (increase(leasehold_partition_moves_total{@}[$__rate_interval]))`, "{{cluster}} {{reason}}"}},
			},
			{
				kind: lines, title: "Moves to come", unit: "none", width: 7,
				about: "Balance moves that are planned, partitions that are draining now, and handoffs past their timeout whose handler has not returned. Stuck ones need a look at their worker.",
				queries: []query{
					{`max by (cluster) (leasehold_rebalance_planned_moves{@})`, "{{cluster}} planned"},
					{`sum by (cluster) (max by (cluster, keyspace) (leasehold_partitions{@k,state="draining"}))`, "{{cluster}} draining"},
					{`max by (cluster) (leasehold_handoffs_stuck{@})`, "{{cluster}} stuck"},
				},
			},
			{
				kind: lines, title: "Time of planned moves by phase", unit: "s", width: 8,
				about: "Half and nearly all of the handoffs: drain is what the old owner takes to finish, total ends with the next grant. Near handoff_timeout, handlers do not look at Draining.",
				queries: []query{
					{`histogram_quantile(0.5, sum by (cluster, phase, le) (rate(leasehold_handoff_duration_seconds_bucket{@}[$__rate_interval])))`, "{{cluster}} {{phase}} p50"},
					{`histogram_quantile(0.99, sum by (cluster, phase, le) (rate(leasehold_handoff_duration_seconds_bucket{@}[$__rate_interval])))`, "{{cluster}} {{phase}} p99"},
				},
			},
		}},
		{"Is the load even?", []panel{
			{
				kind: lines, title: "Imbalance", unit: "none", width: 8, limits: limits{warn: 1.1, bad: 1.5},
				about: "Load of the fullest worker over its fair share, the worst keyspace. Above 1.1 the controller plans moves once things are quiet.",
				queries: []query{{
					`max by (cluster) (leasehold_ring_imbalance_ratio{@})`, "{{cluster}}"}},
			},
			{
				kind: lines, title: "Partitions held by a worker", unit: "none", width: 8, more: "workers",
				about: "What the fullest, the average and the emptiest worker hold, of those that answer Prometheus. Capacities differ on purpose: then so do these.",
				queries: []query{
					{`max by (cluster) (leasehold_worker_partitions_held{@})`, "{{cluster}} fullest"},
					{`avg by (cluster) (leasehold_worker_partitions_held{@})`, "{{cluster}} average"},
					{`min by (cluster) (leasehold_worker_partitions_held{@})`, "{{cluster}} emptiest"},
				},
			},
			{
				kind: lines, title: "Grants", unit: "cps", width: 8,
				about: "Leases granted in a second, and grants that the log refused because something had changed meanwhile. A few refusals in a storm are normal.",
				queries: []query{
					{`max by (cluster, keyspace) (rate(leasehold_lease_grants_total{@k}[$__rate_interval]))`, "{{cluster}} {{keyspace}}"},
					{`sum by (cluster) (rate(leasehold_lease_grants_refused_total{@}[$__rate_interval]))`, "{{cluster}} refused"},
				},
			},
		}},
		{"Did two owners ever work at once?", []panel{
			{
				kind: number, title: "Found by the audit", unit: "none", width: 6, limits: never,
				about: "In the time shown: leases granted while another one had not ended, tokens that did not rise, ends of leases that were not there. Each must be 0; otherwise stop writers at the resource, run `leasehold debug`, and restart nothing.",
				queries: []query{
					{`max by (cluster) (increase(leasehold_audit_overlap_total{@}[$__range]))`, "{{cluster}} overlaps"},
					{`max by (cluster) (increase(leasehold_audit_token_regression_total{@}[$__range]))`, "{{cluster}} tokens not rising"},
					{`max by (cluster) (increase(leasehold_audit_unmatched_ends_total{@}[$__range]))`, "{{cluster}} unmatched ends"},
				},
			},
			{
				kind: bars, title: "Leases audited", unit: "none", width: 6,
				about: "Leases that the audit compared with the one before, in each interval: what the zeroes beside it are worth. It follows the grants; none for long, while there are grants, means that the audit stands still.",
				queries: []query{{
					`max by (cluster) (increase(leasehold_audit_intervals_checked_total{@}[$__rate_interval]))`, "{{cluster}}"}},
			},
			{
				kind: lines, title: "Tokens checked", unit: "cps", width: 6,
				about: "Tokens that workers presented to their guards in a second, as they report with their keep-alives. 0 while work is done: nothing is fenced.",
				queries: []query{{
					`sum by (cluster) (rate(leasehold_fencing_checks_total{@}[$__rate_interval]))`, "{{cluster}}"}},
			},
			{
				kind: bars, title: "Tokens refused", unit: "none", width: 6, more: "workers",
				about: "Writes that guards refused, by reason: the fence at work. Some stale tokens after a pause or a crash are what it is for; a steady flow is a worker that does not notice that it has lost its lease.",
				queries: []query{{
					`sum by (cluster, reason) (increase(leasehold_fencing_rejections_total{@}[$__rate_interval]))`, "{{cluster}} {{reason}}"}},
			},
		}},
	},
}
