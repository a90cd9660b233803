package metrics

import "github.com/prometheus/client_golang/prometheus"

// audit holds what an audit of the log's events says. It is the proof that the
// promise is kept: how much was looked at, and what was found.
type audit struct {
	checked, overlaps, regressions, unmatched, restarts prometheus.Counter
}

func (a *audit) add(s *set) {
	a.checked = s.counter("audit_intervals_checked_total",
		"Leases that the audit compared with the one before of the same partition; every server audits all.")
	a.overlaps = s.counter("audit_overlap_total",
		"Leases that were granted while another one of the same partition had not ended. Must stay 0.")
	a.regressions = s.counter("audit_token_regression_total",
		"Leases whose token was not above every earlier one of their partition. Must stay 0.")
	a.unmatched = s.counter("audit_unmatched_ends_total",
		"Ends of leases that were not the partition's present one. Must stay 0.")
	a.restarts = s.counter("audit_restarts_total",
		"Times the audit began anew from the state, since the events before it were in a snapshot; at the start it does so once.")
}

// Audit is what an audit has found since it last said so.
type Audit struct {
	Checked, Overlaps, Regressions, Unmatched, Restarts uint64
}

// Audited adds what an audit has found.
func (s *Server) Audited(a Audit) {
	if s == nil {
		return
	}
	s.audit.checked.Add(float64(a.Checked))
	s.audit.overlaps.Add(float64(a.Overlaps))
	s.audit.regressions.Add(float64(a.Regressions))
	s.audit.unmatched.Add(float64(a.Unmatched))
	s.audit.restarts.Add(float64(a.Restarts))
}
