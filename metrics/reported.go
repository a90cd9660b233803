package metrics

import "github.com/prometheus/client_golang/prometheus"

// Words of fencing_rejections_total and leases_lost_total, and of the worker's
// own series.
var (
	rejectionReasons = []string{"stale_token", "unknown_token", "token_regression", "other_owner"}
	lostCauses       = []string{"expired", "revoked", "drain_timeout", "superseded", "evicted", "shutdown"}
)

// reported holds what workers say of themselves with their keep-alives, so that
// the servers' series tell of every worker, scraped or not.
type reported struct {
	checks     prometheus.Counter
	rejections counters
	lost       counters
	overruns   prometheus.Counter
	pause      prometheus.Gauge
}

func (r *reported) add(s *set) {
	const how = "; reported by workers, counted by the leader they report to"
	r.checks = s.counter("fencing_checks_total", "Tokens that workers presented to their guards"+how+".")
	r.rejections = s.counters("fencing_rejections_total", "Tokens that workers' guards refused, by reason"+how+".",
		"reason", rejectionReasons...)
	r.lost = s.counters("leases_lost_total", "Leases whose context ended before the handler had returned, by cause"+how+".",
		"cause", lostCauses...)
	r.overruns = s.counter("overruns_total", "Handlers that had not returned some time after their lease's context had ended"+how+".")
	r.pause = s.gauge("workers_longest_pause_seconds",
		"Longest time that any worker's process stood still in the last ten minutes, of those attached here; 0 on servers that do not lead.")
}

// Reported counts what n tokens, leases or handlers were said to have met since
// the worker's last report.
type Reported struct {
	Checks, Overruns uint64
	// Rejections are by reason, Lost by cause; an unknown word is counted as
	// other.
	Rejections, Lost []Count
}

// Count is so many of a kind.
type Count struct {
	Word string
	N    uint64
}

// Reported adds what a worker has reported.
func (s *Server) Reported(r Reported) {
	if s == nil {
		return
	}
	s.reported.checks.Add(float64(r.Checks))
	s.reported.overruns.Add(float64(r.Overruns))
	for _, c := range r.Rejections {
		s.reported.rejections.add(c.Word, int(min(c.N, mostReported)))
	}
	for _, c := range r.Lost {
		s.reported.lost.add(c.Word, int(min(c.N, mostReported)))
	}
}

// mostReported bounds one report: the number is the worker's word only.
const mostReported = 1 << 31

// WorkersPaused sets the longest pause in seconds that attached workers report.
func (s *Server) WorkersPaused(seconds float64) {
	if s != nil {
		s.reported.pause.Set(seconds)
	}
}
