package rules

import "time"

// workers is about sessions, and what workers tell of themselves.
func workers() Group {
	return Group{
		Name: "leasehold-workers",
		Records: []Record{
			{"cluster:leasehold_lease_renewal_failure:ratio_rate5m",
				`sum by (cluster) (rate(leasehold_lease_renewals_total{outcome!="renewed"}[$5m]))
/
sum by (cluster) (rate(leasehold_lease_renewals_total[$5m]))`},
			{"cluster:leasehold_lease_renewal_margin_ratio:p01_rate5m",
				`histogram_quantile(0.01, sum by (cluster, le) (rate(leasehold_lease_renewal_margin_ratio_bucket[$5m])))`},
		},
		Alerts: []Alert{
			{
				Name: "LeaseholdStaleWriters", Severity: Warning,
				Expr:        event("sum by (cluster)", `leasehold_fencing_rejections_total{reason="stale_token"}`, "10m"),
				Summary:     "A guard refused the write of a former owner",
				Description: `Guards refused {{ $value | printf "%.0f" }} writes with an older token in the last ten minutes. The data is safe; a worker went on after its lease was over.`,
			},
			{
				Name: "LeaseholdLeasesLost", Severity: Warning,
				Expr:        event("sum by (cluster)", `leasehold_leases_lost_total{cause=~"expired|revoked|drain_timeout"}`, "10m"),
				Summary:     "Workers lost leases under running handlers",
				Description: `{{ $value | printf "%.0f" }} leases ended before their handler had returned in the last ten minutes.`,
			},
			{
				Name: "LeaseholdHandlersOverrun", Severity: Warning,
				Expr:        event("sum by (cluster)", "leasehold_overruns_total", "10m"),
				Summary:     "Handlers go on after their lease",
				Description: `{{ $value | printf "%.0f" }} handlers had not returned some time after their lease was over. Only a guard keeps their writes out.`,
			},
			{
				Name: "LeaseholdMassExpiry", Severity: Critical,
				Expr: `sum by (cluster) (increase(leasehold_expiry_overdue_seconds_count[$5m]))
> on (cluster)
(0.2 * max by (cluster) (max_over_time(leasehold_sessions{state="active"}[$10m])) > 1)`,
				Summary:     "Many workers' sessions expired together",
				Description: `{{ $value | printf "%.0f" }} sessions ran out in five minutes, more than a fifth of all.`,
			},
			{
				Name: "LeaseholdRenewalsFailing", For: 5 * time.Minute, Severity: Critical,
				Expr:        `cluster:leasehold_lease_renewal_failure:ratio_rate5m > 0.01`,
				Summary:     "Keep-alives fail",
				Description: `{{ $value | humanizePercentage }} of the keep-alives were refused or not committed. When a TTL has passed so, leases are lost.`,
			},
			{
				Name: "LeaseholdRenewalMarginLow", For: 10 * time.Minute, Severity: Warning,
				Expr:        `cluster:leasehold_lease_renewal_margin_ratio:p01_rate5m < 0.3`,
				Summary:     "Keep-alives come late",
				Description: `One keep-alive in a hundred was committed with {{ $value | humanizePercentage }} of the TTL left or less; two thirds are usual. A little later, leases are lost.`,
			},
			{
				Name: "LeaseholdWorkerPauses", For: 5 * time.Minute, Severity: Warning,
				Expr: `max by (cluster) (leasehold_workers_longest_pause_seconds)
> on (cluster)
min by (cluster) (leasehold_lease_ttl_seconds > 0) / 3`,
				Summary:     "A worker stands still for a good part of the TTL",
				Description: `A worker's process stood still for {{ $value | humanizeDuration }} in the last ten minutes, more than a third of the shortest TTL.`,
			},
		},
	}
}
