package rules

import "time"

// The objective that the budget alert goes by: of a hundred hours, partitions
// have an owner for all but 36 seconds (99.99 %). At 14.4 times the rate that
// uses the budget up in 30 days, two days' worth goes in an hour.
const burn = "(14.4 * 0.0001)"

// ownership is about partitions and who has them.
func ownership() Group {
	const configured = `max by (cluster) (sum by (cluster, instance) (leasehold_partitions_configured))`
	unowned := func(window string) string {
		return `max by (cluster) (sum by (cluster, instance) (rate(leasehold_partition_unowned_seconds_total[` + window + `])))
/
` + configured
	}
	return Group{
		Name: "leasehold-ownership",
		Records: []Record{
			{"cluster:leasehold_partition_unowned:ratio_rate5m", unowned("$5m")},
			{"cluster:leasehold_partition_unowned:ratio_rate1h", unowned("$1h")},
			{"cluster:leasehold_takeover_duration_seconds:p99_rate1h",
				`histogram_quantile(0.99, sum by (cluster, le) (rate(leasehold_takeover_duration_seconds_bucket{cause=~"crash|expired"}[$1h])))`},
		},
		Alerts: []Alert{
			{
				Name: "LeaseholdPartitionsUnowned", For: 2 * time.Minute, Severity: Critical,
				Expr:        `max by (cluster, keyspace) (leasehold_partitions{state="unowned"}) > 0`,
				Summary:     "Partitions have no owner",
				Description: `{{ $value }} partitions of keyspace {{ $labels.keyspace }} have had no owner for two minutes: nobody does their work.`,
			},
			{
				Name: "LeaseholdPartitionsQuarantined", For: 5 * time.Minute, Severity: Warning,
				Expr:        `max by (cluster, keyspace) (leasehold_partitions{state="quarantined"}) > 0`,
				Summary:     "Partitions are in quarantine",
				Description: `{{ $value }} partitions of keyspace {{ $labels.keyspace }} failed on several workers and are given to nobody.`,
			},
			{
				Name: "LeaseholdOwnershipBudgetBurn", For: 2 * time.Minute, Severity: Critical,
				Expr: `cluster:leasehold_partition_unowned:ratio_rate5m > ` + burn + `
and
cluster:leasehold_partition_unowned:ratio_rate1h > ` + burn,
				Summary:     "Partitions are without an owner too often",
				Description: `{{ $value | humanizePercentage }} of the partition time of the last five minutes had no owner; at this rate two days of a 99.99 % budget go in an hour.`,
			},
			{
				Name: "LeaseholdDoubleOwnership", Severity: Critical,
				Expr:        event("max by (cluster)", "leasehold_audit_overlap_total", "10m") + "\nor\n" + event("max by (cluster)", "leasehold_audit_unmatched_ends_total", "10m"),
				Summary:     "The audit found two owners of one partition at once",
				Description: `The audit of the log found {{ $value | printf "%.0f" }} leases that overlap or do not match. This must never happen: treat it as damage to data.`,
			},
			{
				Name: "LeaseholdTokenRegression", Severity: Critical,
				Expr: event("max by (cluster)", "leasehold_audit_token_regression_total", "10m") + "\nor\n" +
					event("sum by (cluster)", `leasehold_fencing_rejections_total{reason=~"token_regression|unknown_token|other_owner"}`, "10m"),
				Summary:     "A token went back or was given twice",
				Description: `{{ $value | printf "%.0f" }} tokens were not above all before them, or had another owner at the guard. This must never happen: treat it as damage to data.`,
			},
			{
				Name: "LeaseholdAuditStalled", For: 15 * time.Minute, Severity: Warning,
				Expr: `sum by (cluster, instance) (increase(leasehold_audit_intervals_checked_total[$15m])) == 0
and on (cluster)
sum by (cluster) (increase(leasehold_partition_moves_total{reason!="initial"}[$15m])) > 0`,
				Summary:     "Partitions move and a server's audit does not look",
				Description: `Server {{ $labels.instance }} has audited no lease for half an hour while partitions moved: that it found no overlap means nothing.`,
			},
			{
				Name: "LeaseholdMoveStorm", For: 10 * time.Minute, Severity: Warning,
				Expr: `sum by (cluster) (increase(leasehold_partition_moves_total{reason!~"initial|operator"}[$5m]))
> on (cluster)
0.5 * ` + configured,
				Summary:     "Partitions move all the time",
				Description: `{{ $value | printf "%.0f" }} moves in five minutes, more than one for every second partition, for ten minutes now.`,
			},
			{
				Name: "LeaseholdTakeoverSlow", For: 5 * time.Minute, Severity: Warning,
				Expr: `cluster:leasehold_takeover_duration_seconds:p99_rate1h
> on (cluster)
2 * max by (cluster) (leasehold_lease_ttl_seconds)`,
				Summary:     "Partitions of dead workers wait long for a new owner",
				Description: `99 % of the takeovers of the last hour took up to {{ $value | humanizeDuration }}, more than twice the longest TTL.`,
			},
			{
				Name: "LeaseholdHandoffStuck", For: 5 * time.Minute, Severity: Warning,
				Expr:        `max by (cluster) (leasehold_handoffs_stuck) > 0`,
				Summary:     "A handler does not let go of its partition",
				Description: `{{ $value }} handoffs are past their timeout and wait for a handler to return.`,
			},
		},
	}
}
