package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Worker holds the series of one worker in a user's process and is a
// prometheus.Collector: register it where the process has its other metrics.
// A process with several workers wraps the registerer with a label for each
// (prometheus.WrapRegistererWith).
type Worker struct {
	set set

	attached          prometheus.Gauge
	ttl               prometheus.Gauge
	pause             prometheus.Gauge
	held              prometheus.Gauge
	margin            prometheus.Histogram
	lost              counters
	stop              prometheus.Histogram
	returns           counters
	claimRetries      prometheus.Counter
	running           prometheus.Gauge
	switches          prometheus.Counter
	overruns          prometheus.Counter
	keepAlives        counters
	overdue           prometheus.Gauge
	fencingChecks     prometheus.Counter
	fencingRejections counters
}

// NewWorker makes the series of one worker; none is registered anywhere.
func NewWorker() *Worker {
	w := &Worker{}
	s := &w.set
	w.attached = s.gauge("worker_attached", "1 while the worker has a stream to the servers, else 0; its leases outlast that by their TTL.")
	w.ttl = s.gauge("worker_lease_ttl_seconds", "TTL of the worker's session; 0 without one.")
	w.pause = s.gauge("worker_longest_pause_seconds", "Longest time that this process stood still in the last ten minutes.")
	w.held = s.gauge("worker_partitions_held", "Partitions whose lease this worker holds.")
	w.margin = s.histogram("worker_lease_margin_ratio",
		"Share of the TTL that was left when a keep-alive was acknowledged; near 0 leases are about to be lost.",
		marginBuckets)
	w.lost = s.counters("worker_lease_lost_total", "Leases whose context ended before the handler had returned, by cause.",
		"cause", lostCauses...)
	w.stop = s.histogram("worker_stop_duration_seconds",
		"Time from the end of a lease's context to the return of its handler.", changeBuckets)
	w.returns = s.counters("worker_handler_returns_total",
		"Handlers that returned, by what that meant: done for a drain, an end of the lease or by itself, fenced for a refused token, failed for what counts against the partition.",
		"outcome", "done", "fenced", "failed")
	w.claimRetries = s.counter("worker_claim_retries_total", "Claims that the guard had not answered and that were tried again; handlers wait meanwhile.")
	w.running = s.gauge("worker_callbacks_running", "Handlers that are running.")
	w.switches = s.counter("worker_server_switches_total", "Times the worker changed the server it talks to.")
	w.overruns = s.counter("worker_overruns_total", "Handlers that had not returned when their lease's context ended.")
	w.keepAlives = s.counters("worker_keep_alives_total", "Keep-alives sent, by outcome.",
		"outcome", "ok", "timeout", "unavailable", "unknown_session", "barred", "error")
	w.overdue = s.gauge("worker_renewal_overdue_seconds",
		"Time since the last acknowledged keep-alive was due to be followed by another; 0 when all is well.")
	w.fencingChecks = s.counter("worker_fencing_checks_total", "Tokens that this worker presented to its guard.")
	w.fencingRejections = s.counters("worker_fencing_rejections_total", "Tokens that the guard refused, by reason.",
		"reason", rejectionReasons...)
	return w
}

// Describe implements prometheus.Collector.
func (w *Worker) Describe(ch chan<- *prometheus.Desc) {
	if w != nil {
		w.set.Describe(ch)
	}
}

// Collect implements prometheus.Collector.
func (w *Worker) Collect(ch chan<- prometheus.Metric) {
	if w != nil {
		w.set.Collect(ch)
	}
}

// Attached sets whether the worker has a stream to the servers, and the TTL of
// its session, 0 without one.
func (w *Worker) Attached(on bool, ttl time.Duration) {
	if w == nil {
		return
	}
	boolGauge(w.attached, on)
	w.ttl.Set(ttl.Seconds())
}

// Paused sets for how long the process stood still at most of late.
func (w *Worker) Paused(d time.Duration) {
	if w != nil {
		w.pause.Set(d.Seconds())
	}
}

// Returned counts a handler that returned: done, fenced or failed.
func (w *Worker) Returned(outcome string) {
	if w != nil {
		w.returns.add(outcome, 1)
	}
}

// ClaimRetried counts a claim that had no answer.
func (w *Worker) ClaimRetried() {
	if w != nil {
		w.claimRetries.Inc()
	}
}

// Held sets how many partitions the worker holds.
func (w *Worker) Held(n int) {
	if w != nil {
		w.held.Set(float64(n))
	}
}

// Acked records an acknowledged keep-alive: what was left of the old deadline
// when the acknowledgement came, and the TTL.
func (w *Worker) Acked(left, ttl time.Duration) {
	if w == nil {
		return
	}
	w.keepAlives.add("ok", 1)
	w.overdue.Set(0)
	if ttl > 0 {
		w.margin.Observe(max(0, left.Seconds()/ttl.Seconds()))
	}
}

// KeepAliveFailed counts a keep-alive that was not acknowledged: timeout,
// unavailable, unknown_session, barred or error.
func (w *Worker) KeepAliveFailed(outcome string) {
	if w != nil {
		w.keepAlives.add(outcome, 1)
	}
}

// RenewalOverdue sets for how long an acknowledgement has been overdue.
func (w *Worker) RenewalOverdue(d time.Duration) {
	if w != nil {
		w.overdue.Set(max(0, d.Seconds()))
	}
}

// Lost counts a lease whose context ended under its handler: expired, revoked,
// drain_timeout, superseded, evicted or shutdown.
func (w *Worker) Lost(cause string) {
	if w != nil {
		w.lost.add(cause, 1)
	}
}

// Stopped records the time from the end of a context to the handler's return.
func (w *Worker) Stopped(d time.Duration) {
	if w != nil {
		w.stop.Observe(d.Seconds())
	}
}

// CallbackStarted counts a handler in; CallbackReturned must follow.
func (w *Worker) CallbackStarted() {
	if w != nil {
		w.running.Inc()
	}
}

// CallbackReturned counts a handler out.
func (w *Worker) CallbackReturned() {
	if w != nil {
		w.running.Dec()
	}
}

// ServerSwitched counts a change of the server that the worker talks to.
func (w *Worker) ServerSwitched() {
	if w != nil {
		w.switches.Inc()
	}
}

// Overrun counts a handler that outlived its context.
func (w *Worker) Overrun() {
	if w != nil {
		w.overruns.Inc()
	}
}

// FencingChecked counts n tokens presented to the guard.
func (w *Worker) FencingChecked(n int) {
	if w != nil && n > 0 {
		w.fencingChecks.Add(float64(n))
	}
}

// FencingRejected counts a token that the guard refused: stale_token,
// unknown_token, token_regression or other_owner.
func (w *Worker) FencingRejected(reason string) {
	if w != nil {
		w.fencingRejections.add(reason, 1)
	}
}
