package dashboards

var servers = board{
	name:  "servers",
	title: "Leasehold / Servers",
	about: "Raft, storage, gossip, the APIs, keys and what the processes take.",
	rows: []row{
		{"Who leads?", []panel{
			{
				kind: states, title: "Leader", unit: "none", width: 8, on: "leads", off: "follows",
				about: "Which server leads. Two lines that lead at once are one that has not noticed yet: it can acknowledge nothing. None for seconds: an election; for longer: no majority.",
				queries: []query{{
					`max by (cluster, instance) (leasehold_raft_is_leader{@})`, "{{instance}}"}},
			},
			{
				kind: bars, title: "Elections", unit: "none", width: 8,
				about: "In each interval: elections that were stood for, leaders that stopped since no majority answered, and writes that hung so long that a leader fell silent. Without a restart, look at disk and network.",
				queries: []query{
					{`sum by (cluster) (increase(leasehold_raft_elections_started_total{@}[$__rate_interval]))`, "{{cluster}} stood for"},
					{`sum by (cluster) (increase(leasehold_raft_leader_leases_lost_total{@}[$__rate_interval]))`, "{{cluster}} no majority"},
					{`sum by (cluster) (increase(leasehold_raft_disk_stalls_total{@}[$__rate_interval]))`, "{{cluster}} disk hung"},
				},
			},
			{
				kind: lines, title: "Voters", unit: "none", width: 8,
				about: "Servers with a vote, those that answered the leader within a second, and those that are ready to serve. One below a majority of the first line, and there is no leader.",
				looks: []look{{word: "voters", dashed: true}},
				queries: []query{
					{`max by (cluster) (leasehold_raft_voters{@})`, "{{cluster}} voters"},
					{`max by (cluster) (leasehold_raft_voters_in_contact{@})`, "{{cluster}} in contact"},
					{`count by (cluster) (leasehold_ready{@} == 1)`, "{{cluster}} ready"},
				},
			},
		}},
		{"Does the log keep up?", []panel{
			{
				kind: lines, title: "Commit", unit: "s", width: 8, limits: limits{warn: 0.1, bad: 0.5},
				about: "From handing an entry to Raft to its commit, on the leader: half and nearly all. Renewals and grants wait for it; slow commits come from slow writes (next) or slow followers (below).",
				queries: []query{
					{`histogram_quantile(0.5, sum by (cluster, le) (rate(leasehold_raft_commit_duration_seconds_bucket{@}[$__rate_interval])))`, "{{cluster}} p50"},
					{`histogram_quantile(0.99, sum by (cluster, le) (rate(leasehold_raft_commit_duration_seconds_bucket{@}[$__rate_interval])))`, "{{cluster}} p99"},
				},
			},
			{
				kind: lines, title: "Durable writes, p99", unit: "s", width: 8, limits: limits{warn: 0.1, bad: 0.5},
				about: "Time of nearly all fsyncs of the log and of votes, for each server. One server's line above the others' is its disk; a follower's does no harm while a majority is quick.",
				queries: []query{{
					`histogram_quantile(0.99, sum by (cluster, instance, le) (rate(leasehold_raft_fsync_duration_seconds_bucket{@}[$__rate_interval])))`, "{{instance}}"}},
			},
			{
				kind: heat, title: "Durable writes", unit: "s", width: 8,
				about: "All fsyncs of the log and of votes, of all servers, by their time. A second band far above the first is a disk that stalls now and then.",
				queries: []query{{
					`sum by (le) (increase(leasehold_raft_fsync_duration_seconds_bucket{@}[$__rate_interval]))`, "{{le}}"}},
			},
			{
				kind: lines, title: "Replication", unit: "s", width: 8,
				about: "From sending entries to a follower to its answer, all followers together: half and nearly all. It holds the network and the follower's durable write.",
				queries: []query{
					{`histogram_quantile(0.5, sum by (cluster, le) (rate(leasehold_raft_replication_duration_seconds_bucket{@}[$__rate_interval])))`, "{{cluster}} p50"},
					{`histogram_quantile(0.99, sum by (cluster, le) (rate(leasehold_raft_replication_duration_seconds_bucket{@}[$__rate_interval])))`, "{{cluster}} p99"},
				},
			},
			{
				kind: lines, title: "Entries behind", unit: "none", width: 8,
				about: "What the furthest follower has yet to store, and what each server has yet to apply. Growing: that server cannot keep up, and may need a snapshot.",
				queries: []query{
					{`max by (cluster) (leasehold_raft_follower_lag_entries{@})`, "{{cluster}} to store"},
					{`max by (cluster, instance) (leasehold_raft_commit_index{@} - leasehold_raft_applied_index{@})`, "{{instance}} to apply"},
				},
			},
			{
				kind: lines, title: "Raft's threads", unit: "percentunit", width: 8, top: 1, limits: limits{warn: 0.7, bad: 0.9},
				about: "Share of their time that Raft's threads are busy. Main near 1: too many writes for the log; fsm near 1: too many for the state.",
				queries: []query{{
					`max by (cluster, instance, thread) (leasehold_raft_thread_saturation_ratio{@})`, "{{instance}} {{thread}}"}},
			},
			{
				kind: lines, title: "Entries and commands", unit: "cps", width: 8,
				about: "Log entries in a second on the leader, and the commands that they carried. The more commands in one entry, the more the load is gathered, which is as it should be.",
				queries: []query{
					{`sum by (cluster) (rate(leasehold_raft_entry_commands_count{@}[$__rate_interval]))`, "{{cluster}} entries"},
					{`sum by (cluster) (rate(leasehold_raft_entry_commands_sum{@}[$__rate_interval]))`, "{{cluster}} commands"},
				},
			},
			{
				kind: lines, title: "Silence", unit: "s", width: 8,
				about: "How long ago each server heard from its leader, and nearly the longest that a follower had not answered when the leader looked. Near the election timeout there will be an election.",
				queries: []query{
					{`max by (cluster, instance) (leasehold_raft_leader_last_contact_seconds{@})`, "{{instance}}"},
					{`histogram_quantile(0.99, sum by (cluster, le) (rate(leasehold_raft_follower_silence_seconds_bucket{@}[$__rate_interval])))`, "{{cluster}} followers, p99"},
				},
			},
			{
				kind: lines, title: "Applying an entry", unit: "s", width: 8,
				about: "Time to apply one committed entry to the state: half and nearly all. It is memory and nothing else; milliseconds mean very large entries or a machine without processor time.",
				queries: []query{
					{`histogram_quantile(0.5, sum by (cluster, le) (rate(leasehold_raft_apply_duration_seconds_bucket{@}[$__rate_interval])))`, "{{cluster}} p50"},
					{`histogram_quantile(0.99, sum by (cluster, le) (rate(leasehold_raft_apply_duration_seconds_bucket{@}[$__rate_interval])))`, "{{cluster}} p99"},
				},
			},
		}},
		{"Can a server come back, and is there room?", []panel{
			{
				kind: lines, title: "Log since the snapshot", unit: "none", width: 8,
				about: "Log entries after the newest snapshot, for each server, snapshots that could not be written, and those sent to followers that the log could not catch up. It grows to the threshold and falls; a line that only grows is a snapshot that fails.",
				queries: []query{
					{`max by (cluster, instance) (leasehold_raft_log_entries_since_snapshot{@})`, "{{instance}}"},
					{`sum by (cluster) (increase(leasehold_raft_snapshot_failures_total{@}[$__rate_interval]))`, "{{cluster}} failures"},
					{`sum by (cluster) (increase(leasehold_raft_snapshots_sent_total{@}[$__rate_interval]))`, "{{cluster}} sent"},
				},
			},
			{
				kind: lines, title: "Oldest log entry and last restore", unit: "s", width: 8,
				about: "How far back each server's log reaches, and how long the last restore of a snapshot took. A follower whose restore takes longer than the log reaches back never catches up.",
				queries: []query{
					{`min by (cluster, instance) (leasehold_raft_oldest_log_age_seconds{@})`, "{{instance}} log"},
					{`max by (cluster, instance) (leasehold_raft_last_restore_duration_seconds{@})`, "{{instance}} restore"},
				},
			},
			{
				kind: lines, title: "Since the last backup", unit: "s", width: 8,
				about: "Time since any server sent a whole backup. No line: none since they run; `leasehold backup save` makes one, deploy/OPERATIONS.md says how often.",
				queries: []query{{
					`time() - max by (cluster) (leasehold_backup_last_success_timestamp_seconds{@} > 0)`, "{{cluster}}"}},
			},
			{
				kind: lines, title: "Data directory", unit: "bytes", width: 8,
				about: "Size of each server's data directory, its newest snapshot included.",
				queries: []query{
					{`max by (cluster, instance) (leasehold_data_dir_size_bytes{@})`, "{{instance}}"},
					{`max by (cluster, instance) (leasehold_raft_snapshot_size_bytes{@})`, "{{instance}} snapshot"},
				},
			},
			{
				kind: lines, title: "Room on disk, now and in 4 h", unit: "bytes", width: 8,
				about: "What each server may still fill, and what that will be if it goes on as in the last 4 hours. A full disk ends its server; with two of three full there is no leader.",
				looks: []look{{word: "in 4 h", dashed: true}},
				queries: []query{
					{`min by (cluster, instance) (leasehold_data_dir_free_bytes{@})`, "{{instance}}"},
					{`min by (cluster, instance) (predict_linear(leasehold_data_dir_free_bytes{@}[4h], 4 * 3600))`, "{{instance}} in 4 h"},
				},
			},
			{
				kind: lines, title: "Memory", unit: "bytes", width: 8,
				about: "Resident memory of each server. It follows the number of partitions, keys and watches; a line that grows while these do not is worth a `leasehold debug`.",
				queries: []query{{
					`max by (cluster, instance) (process_resident_memory_bytes{@,job="leasehold-server"})`, "{{instance}}"}},
			},
			{
				kind: lines, title: "Processor", unit: "none", width: 8,
				about: "Cores that each server takes. Near what it may have, keep-alives are late and leases are lost.",
				queries: []query{{
					`max by (cluster, instance) (rate(process_cpu_seconds_total{@,job="leasehold-server"}[$__rate_interval]))`, "{{instance}}"}},
			},
			{
				kind: lines, title: "Goroutines", unit: "none", width: 8,
				about: "Goroutines of each server. They follow streams, watches and connections; a line that grows while these do not is a fault of ours.",
				queries: []query{{
					`max by (cluster, instance) (go_goroutines{@,job="leasehold-server"})`, "{{instance}}"}},
			},
			{
				kind: lines, title: "Open files", unit: "percentunit", width: 8, top: 1, limits: limits{warn: 0.7, bad: 0.9},
				about: "File descriptors of each server over what it may have. Connections take most; at 1 nobody can connect.",
				queries: []query{{
					`max by (cluster, instance) (process_open_fds{@,job="leasehold-server"} / process_max_fds{@,job="leasehold-server"})`, "{{instance}}"}},
			},
		}},
		{"Do members see each other?", []panel{
			{
				kind: lines, title: "Members alive", unit: "none", width: 8,
				about: "Members that each server believes to be alive, itself and workers included. The lines coincide; for longer than a minute apart: the network is cut, or keys differ.",
				queries: []query{{
					`max by (cluster, instance) (leasehold_gossip_members{@,state="alive"})`, "{{instance}}"}},
			},
			{
				kind: lines, title: "Gossip's health", unit: "none", width: 8, limits: limits{warn: 2, bad: 5},
				about: "How badly each server keeps up with gossip's timing, 0 is healthy, and messages that wait. Above 2: the machine is overloaded, or packets are lost.",
				queries: []query{
					{`max by (cluster, instance) (leasehold_gossip_health_score{@})`, "{{instance}}"},
					{`max by (cluster) (leasehold_gossip_queue_depth{@})`, "{{cluster}} messages waiting"},
				},
			},
			{
				kind: bars, title: "Doubts", unit: "none", width: 8,
				about: "In each interval: probes that nobody answered, members that were suspected, members taken for dead that were there after all, and those that answered over TCP alone. The third: packets are lost, or workers stand still. The last: a firewall drops UDP.",
				queries: []query{
					{`sum by (cluster) (increase(leasehold_gossip_probe_failures_total{@}[$__rate_interval]))`, "{{cluster}} probes failed"},
					{`sum by (cluster) (increase(leasehold_gossip_suspicions_total{@}[$__rate_interval]))`, "{{cluster}} suspected"},
					{`sum by (cluster) (increase(leasehold_gossip_bounces_total{@}[$__rate_interval]))`, "{{cluster}} there after all"},
					{`sum by (cluster) (increase(leasehold_gossip_udp_failures_total{@}[$__rate_interval]))`, "{{cluster}} without UDP"},
				},
			},
			{
				kind: bars, title: "Packets thrown away", unit: "none", width: 8,
				about: "In each interval, by reason. Decrypt: the keys differ, a rotation is half done. Label or stranger: members of another cluster. Overflow: more than this server can read.",
				queries: []query{{
					`sum by (cluster, reason) (increase(leasehold_gossip_rejected_packets_total{@}[$__rate_interval]))`, "{{cluster}} {{reason}}"}},
			},
			{
				kind: lines, title: "Probes", unit: "s", width: 8,
				about: "Time that probes of members took, indirect questions included: half and nearly all. It is the network's round trip while all is well.",
				queries: []query{
					{`histogram_quantile(0.5, sum by (cluster, le) (rate(leasehold_gossip_probe_duration_seconds_bucket{@}[$__rate_interval])))`, "{{cluster}} p50"},
					{`histogram_quantile(0.99, sum by (cluster, le) (rate(leasehold_gossip_probe_duration_seconds_bucket{@}[$__rate_interval])))`, "{{cluster}} p99"},
				},
			},
			{
				kind: stacked, title: "Gossip's traffic", unit: "Bps", width: 8,
				about: "Bytes of gossip of all servers in a second, by transport and direction. It follows the number of members and how often they change.",
				queries: []query{{
					`sum by (cluster, direction) (rate(leasehold_gossip_bytes_total{@}[$__rate_interval]))`, "{{cluster}} {{direction}}"}},
			},
		}},
		{"Are calls answered?", []panel{
			{
				kind: stacked, title: "Calls", unit: "reqps", width: 8,
				about: "Calls of both APIs answered in a second, by what they are about. One that was passed on to the leader counts at both servers.",
				queries: []query{{
					`sum by (cluster, api, call) (rate(leasehold_rpc_requests_total{@}[$__rate_interval]))`, "{{cluster}} {{api}} {{call}}"}},
			},
			{
				kind: bars, title: "Calls not answered well", unit: "none", width: 8,
				about: "In each interval: refused for what they asked, and unavailable, which another try may mend. Unavailable comes with leader changes; refused in numbers is a client with a fault.",
				queries: []query{{
					`sum by (cluster, api, outcome) (increase(leasehold_rpc_requests_total{@,outcome!="ok"}[$__rate_interval]))`, "{{cluster}} {{api}} {{outcome}}"}},
			},
			{
				kind: lines, title: "Time of calls, p99", unit: "s", width: 8, limits: limits{warn: 0.15, bad: 1},
				about: "Nearly all calls took less, by API and whether they change something; without streams and calls that wait. Writes take a commit, reads a round of the leader.",
				queries: []query{{
					`histogram_quantile(0.99, sum by (cluster, api, kind, le) (rate(leasehold_rpc_duration_seconds_bucket{@}[$__rate_interval])))`, "{{cluster}} {{api}} {{kind}}"}},
			},
			{
				kind: lines, title: "Connections", unit: "none", width: 12,
				about: "Open connections of each server, by port. Workers and clients spread over servers on their own; all on one means that the others are not reachable for them.",
				queries: []query{{
					`max by (cluster, instance, listener) (leasehold_connections{@})`, "{{instance}} {{listener}}"}},
			},
			{
				kind: lines, title: "Watches of events", unit: "none", width: 12,
				about: "Streams of events that each server serves: workers' directories, routers, consoles and `leasehold events -f`.",
				queries: []query{{
					`max by (cluster, instance) (leasehold_event_watchers{@})`, "{{instance}}"}},
			},
		}},
		{"Who is not let in?", []panel{
			{
				kind: bars, title: "Refused for who they are", unit: "none", width: 8,
				about: "In each interval: connections and calls of somebody who could not say who they are, or may not do what they asked for. A steady line is a program with an old certificate; the servers' logs name it.",
				queries: []query{{
					`sum by (cluster, reason) (increase(leasehold_auth_failures_total{@}[$__rate_interval]))`, "{{cluster}} {{reason}}"}},
			},
			{
				kind: bars, title: "Refused for being too much", unit: "none", width: 8,
				about: "In each interval: connections, calls and messages that were refused because a limit was reached. Those that are let in do not notice; the servers' logs name addresses.",
				queries: []query{{
					`sum by (cluster, instance, limit) (increase(leasehold_limit_rejections_total{@}[$__rate_interval]))`, "{{instance}} {{limit}}"}},
			},
			{
				kind: lines, title: "Until certificates run out", unit: "s", width: 8,
				about: "How long the certificate of each server, and the first of the authorities that it believes, will last. 0: it has run out, or there is no TLS. New files are used without a restart.",
				queries: []query{{
					`clamp_min(min by (cluster, instance, certificate) (leasehold_certificate_expiry_timestamp_seconds{@}) - time(), 0)`, "{{instance}} {{certificate}}"}},
			},
		}},
		{"Are keys well?", []panel{
			{
				kind: lines, title: "Changes of keys", unit: "cps", width: 8,
				about: "How fast each server's revision of the keys grows; the lines coincide. A server below the others is behind.",
				queries: []query{{
					`max by (cluster, instance) (deriv(leasehold_kv_revision{@}[$__rate_interval]))`, "{{instance}}"}},
			},
			{
				kind: lines, title: "Keys and their history", unit: "bytes", width: 8,
				about: "Memory that keys and their history take, and the quota from which on puts are refused; 0 is none. Compact to shrink it.",
				looks: []look{{word: "quota", dashed: true}},
				queries: []query{
					{`max by (cluster) (leasehold_kv_size_bytes{@})`, "{{cluster}} size"},
					{`max by (cluster) (leasehold_kv_quota_bytes{@})`, "{{cluster}} quota"},
				},
			},
			{
				kind: lines, title: "Revisions kept", unit: "none", width: 8,
				about: "Revisions since the last compaction, and keys that are there now. The first only grows while nobody compacts.",
				queries: []query{
					{`max by (cluster) (leasehold_kv_revision{@} - leasehold_kv_compact_revision{@})`, "{{cluster}} revisions"},
					{`max by (cluster) (leasehold_kv_keys{@})`, "{{cluster}} keys"},
				},
			},
			{
				kind: lines, title: "Watches of keys", unit: "none", width: 12,
				about: "Watches of keys of each server, and those that have not been told of the newest revision yet. A steady number behind: clients that read slowly.",
				queries: []query{
					{`max by (cluster, instance) (leasehold_kv_watchers{@})`, "{{instance}}"},
					{`max by (cluster, instance) (leasehold_kv_watchers_behind{@})`, "{{instance}} behind"},
				},
			},
			{
				kind: bars, title: "Watches ended by compaction", unit: "none", width: 12,
				about: "In each interval: watches that ended because what they had to tell next had been compacted. Compact later, or find the client that does not read.",
				queries: []query{{
					`sum by (cluster) (increase(leasehold_kv_watches_compacted_total{@}[$__rate_interval]))`, "{{cluster}}"}},
			},
		}},
	},
}
