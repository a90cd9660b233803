package dashboards

var workers = board{
	name:  "workers",
	title: "Leasehold / Workers",
	about: "Who is there, whether leases are renewed in time, and how work ends. What the servers know of all workers comes first; what only workers know needs the scrape job leasehold-worker.",
	rows: []row{
		{"Who is there?", []panel{
			{
				kind: stacked, title: "Workers by state", unit: "none", width: 8,
				about: "Sessions of workers in the replicated state: active, leaving, and barred ones, which get nothing more and wait for their end.",
				looks: []look{{word: "active", colour: "green"}, {word: "leaving", colour: "orange"}, {word: "barred", colour: "red"}},
				queries: []query{{
					`max by (cluster, state) (leasehold_sessions{@})`, "{{cluster}} {{state}}"}},
			},
			{
				kind: bars, title: "Sessions opened and ended", unit: "none", width: 8,
				about: "In each interval: sessions that began, and those that ended otherwise than by their worker's wish, by cause. Many of ttl: workers die, stand still or cannot reach the leader.",
				queries: []query{
					{`max by (cluster) (increase(leasehold_sessions_opened_total{@}[$__rate_interval]))`, "{{cluster}} opened"},
					{`max by (cluster, cause) (increase(leasehold_sessions_expired_total{@}[$__rate_interval]))`, "{{cluster}} ended: {{cause}}"},
				},
			},
			{
				kind: lines, title: "Workers in touch with the leader", unit: "none", width: 8,
				about: "Active sessions, and those whose worker has its stream at the leader. The second line below the first for longer than a leader change: workers cannot reach the leader and renew through followers, or are gone.",
				queries: []query{
					{`max by (cluster) (leasehold_sessions{@,state="active"})`, "{{cluster}} active"},
					{`max by (cluster) (leasehold_sessions_attached{@})`, "{{cluster}} attached"},
				},
			},
		}},
		{"Are leases renewed in time?", []panel{
			{
				kind: heat, title: "Lease left at renewal", unit: "percentunit", width: 9,
				about: "Share of the TTL that sessions had left when a keep-alive was committed, of all workers. All is well near 75 %, since a keep-alive is sent each quarter; rows that fill further down are late workers, a slow network or a slow log.",
				queries: []query{{
					`sum by (le) (increase(leasehold_lease_renewal_margin_ratio_bucket{@}[$__rate_interval]))`, "{{le}}"}},
			},
			{
				kind: lines, title: "Least lease left at renewal", unit: "percentunit", width: 8, top: 1, limits: limits{warn: 0.5, bad: 0.3, low: true},
				about: "What all but one in a hundred renewals had left, as the leader and as workers measure it. Only the workers' line falls: answers come late. Both: keep-alives come late.",
				queries: []query{
					{`histogram_quantile(0.01, sum by (cluster, le) (rate(leasehold_lease_renewal_margin_ratio_bucket{@}[$__rate_interval])))`, "{{cluster}} at the leader"},
					{`histogram_quantile(0.01, sum by (cluster, le) (rate(leasehold_worker_lease_margin_ratio_bucket{@}[$__rate_interval])))`, "{{cluster}} at the workers"},
				},
			},
			{
				kind: stacked, title: "Renewals by outcome", unit: "cps", width: 7,
				about: "Keep-alives that the leader put into the log, in a second. Refused ones are of sessions that have ended; failed ones did not commit, which is a matter of the servers.",
				looks: []look{{word: "renewed", colour: "green"}, {word: "refused", colour: "orange"}, {word: "failed", colour: "red"}},
				queries: []query{{
					`sum by (cluster, outcome) (rate(leasehold_lease_renewals_total{@}[$__rate_interval]))`, "{{cluster}} {{outcome}}"}},
			},
			{
				kind: stacked, title: "Keep-alives by outcome", unit: "cps", width: 8,
				about: "The same as workers see it: what they sent in a second and how it ended. Timeouts and unavailable come with each leader change; the leases outlast it.",
				looks: []look{{word: "ok", colour: "green"}, {word: "timeout", colour: "red"}, {word: "unavailable", colour: "orange"}},
				queries: []query{{
					`sum by (cluster, outcome) (rate(leasehold_worker_keep_alives_total{@}[$__rate_interval]))`, "{{cluster}} {{outcome}}"}},
			},
			{
				kind: lines, title: "Latest renewal and longest pause", unit: "s", width: 8,
				about: "The worker that waits longest for an answer to its keep-alive, and the longest that any worker's process stood still in ten minutes. A pause near the TTL loses leases: look at memory, garbage collection and the machine.",
				queries: []query{
					{`max by (cluster) (leasehold_worker_renewal_overdue_seconds{@})`, "{{cluster}} overdue"},
					{`max by (cluster) (leasehold_workers_longest_pause_seconds{@})`, "{{cluster}} pause"},
				},
			},
			{
				kind: lines, title: "Sessions ended after their TTL", unit: "s", width: 8,
				about: "How long after its deadline the leader ended a session: half and nearly all. Above a second the leader or the log is slow, and takeovers with it.",
				queries: []query{
					{`histogram_quantile(0.5, sum by (cluster, le) (rate(leasehold_expiry_overdue_seconds_bucket{@}[$__rate_interval])))`, "{{cluster}} p50"},
					{`histogram_quantile(0.99, sum by (cluster, le) (rate(leasehold_expiry_overdue_seconds_bucket{@}[$__rate_interval])))`, "{{cluster}} p99"},
				},
			},
		}},
		{"Does work end in time?", []panel{
			{
				kind: bars, title: "Leases lost by cause", unit: "none", width: 8,
				about: "Leases whose context ended before the handler had returned, as workers report. Expired: not renewed in time. Drain_timeout: the handler did not finish a planned move.",
				queries: []query{{
					`sum by (cluster, cause) (increase(leasehold_leases_lost_total{@}[$__rate_interval]))`, "{{cluster}} {{cause}}"}},
			},
			{
				kind: bars, title: "Overruns", unit: "none", width: 8,
				about: "Handlers that had not returned some time after their context had ended, as workers report: work that may go on beside the next owner's, and that only the fence stops.",
				queries: []query{{
					`sum by (cluster) (increase(leasehold_overruns_total{@}[$__rate_interval]))`, "{{cluster}}"}},
			},
			{
				kind: lines, title: "Time to stop", unit: "s", width: 8,
				about: "From the end of a lease's context to the return of its handler: half and nearly all. More than the margin of 5 % of the TTL is an overrun; StopGrace gives handlers more time.",
				queries: []query{
					{`histogram_quantile(0.5, sum by (cluster, le) (rate(leasehold_worker_stop_duration_seconds_bucket{@}[$__rate_interval])))`, "{{cluster}} p50"},
					{`histogram_quantile(0.99, sum by (cluster, le) (rate(leasehold_worker_stop_duration_seconds_bucket{@}[$__rate_interval])))`, "{{cluster}} p99"},
				},
			},
		}},
		{"Does the work itself go well?", []panel{
			{
				kind: lines, title: "Leases held and handlers running", unit: "none", width: 8,
				about: "Of all workers that answer Prometheus. More leases than handlers: claims wait for the guard's store. More handlers than leases: handlers run on after their lease.",
				queries: []query{
					{`sum by (cluster) (leasehold_worker_partitions_held{@})`, "{{cluster}} held"},
					{`sum by (cluster) (leasehold_worker_callbacks_running{@})`, "{{cluster}} running"},
				},
			},
			{
				kind: bars, title: "Handlers returned by outcome", unit: "none", width: 8,
				about: "Done: for a drain, the end of the lease, or by itself. Fenced: a token was refused. Failed counts against the partition, which is quarantined after three workers.",
				looks: []look{{word: "done", colour: "green"}, {word: "fenced", colour: "orange"}, {word: "failed", colour: "red"}},
				queries: []query{{
					`sum by (cluster, outcome) (increase(leasehold_worker_handler_returns_total{@}[$__rate_interval]))`, "{{cluster}} {{outcome}}"}},
			},
			{
				kind: bars, title: "Second tries", unit: "none", width: 8,
				about: "Claims that the guard's store had not answered, and changes of the server that a worker talks to. The first means trouble with the store, the second with servers or network.",
				queries: []query{
					{`sum by (cluster) (increase(leasehold_worker_claim_retries_total{@}[$__rate_interval]))`, "{{cluster}} claims repeated"},
					{`sum by (cluster) (increase(leasehold_worker_server_switches_total{@}[$__rate_interval]))`, "{{cluster}} servers changed"},
				},
			},
		}},
		{"What did guards refuse?", []panel{
			{
				kind: lines, title: "Tokens presented", unit: "cps", width: 12,
				about: "Tokens that workers presented to their guards in a second, counted by the workers themselves and, from their keep-alives, by the servers. The lines coincide, but for workers that are scraped by nobody.",
				queries: []query{
					{`sum by (cluster) (rate(leasehold_worker_fencing_checks_total{@}[$__rate_interval]))`, "{{cluster}} by workers"},
					{`sum by (cluster) (rate(leasehold_fencing_checks_total{@}[$__rate_interval]))`, "{{cluster}} reported to servers"},
				},
			},
			{
				kind: bars, title: "Tokens refused by reason", unit: "none", width: 12,
				about: "Stale_token: somebody newer owns the partition. Unknown_token: the guard's store has never seen the partition claimed. Token_regression is a damaged or restored store and needs a look at once.",
				queries: []query{{
					`sum by (cluster, reason) (increase(leasehold_fencing_rejections_total{@}[$__rate_interval]))`, "{{cluster}} {{reason}}"}},
			},
		}},
	},
}
