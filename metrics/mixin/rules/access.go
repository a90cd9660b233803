package rules

import "time"

// access is about who is let in, and what is too much.
func access() Group {
	return Group{
		Name: "leasehold-access",
		Alerts: []Alert{
			{
				Name: "LeaseholdCertificateExpired", Severity: Critical,
				Expr: `min by (cluster, instance, certificate) (leasehold_certificate_expiry_timestamp_seconds > 0)
< time()`,
				Summary:     "A server's certificate has run out",
				Description: `The {{ $labels.certificate }} certificate of {{ $labels.instance }} has run out. Whoever has a connection keeps it; nobody gets a new one.`,
			},
			{
				Name: "LeaseholdCertificateExpiring", For: 10 * time.Minute, Severity: Warning,
				Expr: `min by (cluster, instance, certificate) (
  (leasehold_certificate_expiry_timestamp_seconds > time()) - time()
) < $(7d)`,
				Summary:     "A server's certificate runs out soon",
				Description: `The {{ $labels.certificate }} certificate of {{ $labels.instance }} runs out in {{ $value | humanizeDuration }}.`,
			},
			{
				Name: "LeaseholdAuthFailures", For: 10 * time.Minute, Severity: Warning,
				Expr:        `sum by (cluster, reason) (rate(leasehold_auth_failures_total[$5m])) > 0.1`,
				Summary:     "Somebody is not let in, again and again",
				Description: `{{ $value | humanize }} connections and calls a second are refused ({{ $labels.reason }}).`,
			},
			{
				Name: "LeaseholdLimitReached", For: 10 * time.Minute, Severity: Warning,
				Expr:        `sum by (cluster, instance, limit) (rate(leasehold_limit_rejections_total[$5m])) > 0.1`,
				Summary:     "A limit of a server is reached",
				Description: `{{ $labels.instance }} refuses {{ $value | humanize }} times a second because of its limit of {{ $labels.limit }}.`,
			},
			{
				Name: "LeaseholdAuditEntriesLost", Severity: Warning,
				Expr:        `sum by (cluster, instance) (increase(leasehold_audit_log_lost_entries_total[$5m])) > 0`,
				Summary:     "The audit log has a hole",
				Description: `{{ $labels.instance }} could not write {{ $value | humanize }} entries about who called what in the last minutes.`,
			},
		},
	}
}
