package server

import "github.com/leasehold-dev/leasehold/ownership/auth"

// openAuth comes after the APIs, whose rules it asks.
func (s *Server) openAuth() {
	s.auth = auth.New(auth.Config{
		Rules:  []auth.Rules{s.api, s.etcd},
		Logger: s.log, Metrics: s.metrics,
		Audit: s.auditRecorder(),
	})
}
