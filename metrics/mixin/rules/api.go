package rules

import "time"

// api is about what clients ask, and the keys they put.
func api() Group {
	return Group{
		Name: "leasehold-api",
		Records: []Record{
			{"cluster_api:leasehold_rpc_unavailable:ratio_rate5m",
				`sum by (cluster, api) (rate(leasehold_rpc_requests_total{outcome="unavailable"}[$5m]))
/
sum by (cluster, api) (rate(leasehold_rpc_requests_total[$5m]))`},
			{"cluster_api_kind:leasehold_rpc_duration_seconds:p99_rate5m",
				`histogram_quantile(0.99, sum by (cluster, api, kind, le) (rate(leasehold_rpc_duration_seconds_bucket[$5m])))`},
		},
		Alerts: []Alert{
			{
				Name: "LeaseholdApiErrors", For: 10 * time.Minute, Severity: Warning,
				Expr:        `cluster_api:leasehold_rpc_unavailable:ratio_rate5m > 0.01`,
				Summary:     "Calls fail that should not",
				Description: `{{ $value | humanizePercentage }} of the calls of the {{ $labels.api }} API could not be answered.`,
			},
			{
				Name: "LeaseholdApiSlow", For: 10 * time.Minute, Severity: Warning,
				Expr:        `cluster_api_kind:leasehold_rpc_duration_seconds:p99_rate5m > 0.25`,
				Summary:     "Calls are slow",
				Description: `One {{ $labels.kind }} in a hundred of the {{ $labels.api }} API takes {{ $value | humanizeDuration }} or more.`,
			},
			{
				Name: "LeaseholdQuotaLow", For: 10 * time.Minute, Severity: Warning,
				Expr: `max by (cluster) (leasehold_kv_size_bytes)
/ on (cluster)
(max by (cluster) (leasehold_kv_quota_bytes) > 0) > 0.85`,
				Summary:     "Keys have nearly filled their quota",
				Description: `Keys and their history take {{ $value | humanizePercentage }} of --quota-bytes. At 100 % puts are refused.`,
			},
		},
	}
}
