package rules

import "time"

// job selects the servers among the targets of Prometheus.
const job = `job="leasehold-server"`

// servers is about the Raft group, and the disks below it.
func servers() Group {
	return Group{
		Name: "leasehold-servers",
		Records: []Record{
			{"instance:leasehold_raft_fsync_duration_seconds:p99_rate5m",
				`histogram_quantile(0.99, sum by (cluster, instance, le) (rate(leasehold_raft_fsync_duration_seconds_bucket[$5m])))`},
		},
		Alerts: []Alert{
			{
				Name: "LeaseholdNoLeader", For: 30 * time.Second, Severity: Critical,
				Expr: `max by (cluster) (leasehold_raft_has_leader) == 0
or
sum by (cluster) (up{` + job + `}) == 0`,
				Summary:     "The servers have no leader",
				Description: `No server knows a leader, or none answers. Nobody can renew: leases end within their TTL.`,
			},
			{
				Name: "LeaseholdQuorumAtRisk", For: 5 * time.Minute, Severity: Critical,
				Expr: `(max by (cluster) (leasehold_raft_voters_in_contact) > 0)
<= on (cluster)
floor((max by (cluster) (leasehold_raft_voters) > 1) / 2) + 1`,
				Summary:     "One more server lost stops the cluster",
				Description: `Only {{ $value }} voters answer the leader, no more than are needed.`,
			},
			{
				Name: "LeaseholdServerDown", For: 5 * time.Minute, Severity: Warning,
				Expr:        `max by (cluster, instance) (up{` + job + `}) == 0`,
				Summary:     "A server does not answer",
				Description: `Server {{ $labels.instance }} has not been scraped for five minutes.`,
			},
			{
				Name: "LeaseholdServerNotReady", For: 5 * time.Minute, Severity: Warning,
				Expr: `max by (cluster, instance) (leasehold_ready) == 0
and on (cluster)
max by (cluster) (leasehold_raft_has_leader) == 1`,
				Summary:     "A server runs and does not serve",
				Description: `Server {{ $labels.instance }} has not been ready for five minutes, though there is a leader.`,
			},
			{
				Name: "LeaseholdLeaderFlapping", For: 5 * time.Minute, Severity: Warning,
				Expr:        `max by (cluster) (increase(leasehold_raft_leader_changes_total[$15m])) >= 6`,
				Summary:     "The leadership moves to and fro",
				Description: `A server saw {{ $value | printf "%.0f" }} changes of the leader in a quarter of an hour; an election makes two.`,
			},
			{
				Name: "LeaseholdStoragePoisoned", Severity: Critical,
				Expr:        `max by (cluster, instance) (max_over_time(leasehold_storage_poisoned[$10m])) > 0`,
				Summary:     "A server's disk failed to write",
				Description: `A write or sync failed on {{ $labels.instance }}. The server has written nothing since, and ends.`,
			},
			{
				Name: "LeaseholdDiskStalled", Severity: Warning,
				Expr:        event("sum by (cluster, instance)", "leasehold_raft_disk_stalls_total", "15m"),
				Summary:     "A server's disk hung",
				Description: `Writes of the log on {{ $labels.instance }} hung {{ $value | printf "%.0f" }} times in a quarter of an hour, for so long that it gave up the leadership.`,
			},
			{
				Name: "LeaseholdFsyncSlow", For: 10 * time.Minute, Severity: Warning,
				Expr:        `instance:leasehold_raft_fsync_duration_seconds:p99_rate5m > 0.1`,
				Summary:     "A server's disk syncs slowly",
				Description: `One sync in a hundred takes {{ $value | humanizeDuration }} or more on {{ $labels.instance }}; keep-alives wait for it.`,
			},
			{
				Name: "LeaseholdDiskFilling", For: 10 * time.Minute, Severity: Critical,
				Expr: `min by (cluster, instance) (leasehold_data_dir_free_bytes) < 1073741824
or
min by (cluster, instance) (
  leasehold_data_dir_free_bytes < 10737418240
  and predict_linear(leasehold_data_dir_free_bytes[$4h], $(4h)) < 0
)`,
				Summary:     "A server's disk fills up",
				Description: `{{ $value | humanize1024 }}B are free for the data of {{ $labels.instance }}: that is less than 1 GiB, or will be used up within four hours.`,
			},
			{
				Name: "LeaseholdFollowerBehind", For: 10 * time.Minute, Severity: Warning,
				Expr: `max by (cluster) (leasehold_raft_follower_lag_entries) > 5000
or
sum by (cluster) (increase(leasehold_raft_snapshots_sent_total[$30m])) > 3`,
				Summary:     "A server cannot keep up with the log",
				Description: `A follower is far behind the leader, or has been sent snapshot after snapshot ({{ $value | printf "%.0f" }} entries or snapshots).`,
			},
			{
				Name: "LeaseholdSnapshotsFailing", Severity: Warning,
				Expr:        event("sum by (cluster, instance)", "leasehold_raft_snapshot_failures_total", "1h"),
				Summary:     "A server cannot write snapshots",
				Description: `{{ $value | printf "%.0f" }} snapshots could not be written on {{ $labels.instance }} within an hour. The log grows until one can.`,
			},
			{
				Name: "LeaseholdBackupStale", For: 2 * time.Hour, Severity: Warning,
				Expr:        `time() - max by (cluster) (max_over_time(leasehold_backup_last_success_timestamp_seconds[$7d])) > $(26h)`,
				Summary:     "There is no backup of today",
				Description: `No backup has been taken for more than 26 hours, or none in the last seven days.`,
			},
			{
				Name: "LeaseholdVersionSkew", For: 24 * time.Hour, Severity: Info,
				Expr:        `count by (cluster) (count by (cluster, version) (leasehold_build_info)) > 1`,
				Summary:     "Servers run different versions",
				Description: `{{ $value }} versions have run side by side for a day. That is made for the time of an upgrade.`,
			},
		},
	}
}
