package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// accesses are the series of who was not let in, of what was too much, and of how
// long the certificates last.
type accesses struct {
	limits   counters
	failures counters
	expiry   gauges
	unkept   prometheus.Counter
}

// The limits that a server has, and why it does not believe who somebody says
// they are, or does not let them do what they ask for.
var (
	limitNames = []string{
		"connections", "connections_per_address", "handshakes", "streams", "resets", "request_size",
		"failed_logins", "raft_frame", "gossip_payload", "strangers",
	}
	authReasons = []string{"none", "bad", "expired", "revoked", "wrong_ca", "wrong_cluster", "wrong_role", "denied"}
)

func (a *accesses) add(s *set) {
	a.limits = s.known("limit_rejections_total",
		"Connections, calls and messages that were refused because a limit was reached, by limit.",
		"limit", limitNames...)
	a.failures = s.known("auth_failures_total",
		"Connections and calls of somebody who could not say who they are, or may not do what they asked for (denied), by reason.",
		"reason", authReasons...)
	a.expiry = s.gauges("certificate_expiry_timestamp_seconds",
		"When the server's own certificate and the first of the authorities that it believes run out, as Unix time; 0: there is none.",
		"certificate", "server", "authority")
	a.unkept = s.counter("audit_log_lost_entries_total",
		"Entries of the log of who called what that could not be written; the file says where they are missing.")
}

// AuditLost counts entries that are missing in the log of who called what.
func (s *Server) AuditLost(n int) {
	if s == nil || n <= 0 {
		return
	}
	s.access.unkept.Add(float64(n))
}

// LimitHit counts what was refused because of a limit: connections,
// connections_per_address, handshakes, streams, resets, request_size,
// failed_logins, raft_frame, gossip_payload or strangers.
func (s *Server) LimitHit(limit string) {
	if s == nil {
		return
	}
	if c, ok := s.access.limits[limit]; ok {
		c.Inc()
	}
}

// AuthFailed counts somebody who was not believed, or not let do what they asked
// for: none, bad, expired, revoked, wrong_ca, wrong_cluster, wrong_role or denied.
func (s *Server) AuthFailed(reason string) {
	if s == nil {
		return
	}
	if c, ok := s.access.failures[reason]; ok {
		c.Inc()
	}
}

// CertificateExpires sets when the certificate of a use, server or authority, runs
// out. The zero time means that there is none.
func (s *Server) CertificateExpires(use string, at time.Time) {
	if s == nil {
		return
	}
	if g, ok := s.access.expiry[use]; ok {
		setUnix(g, at)
	}
}

func setUnix(g prometheus.Gauge, at time.Time) {
	if at.IsZero() {
		g.Set(0)
		return
	}
	g.Set(float64(at.Unix()))
}
