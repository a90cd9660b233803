package server

import (
	"github.com/leasehold-dev/leasehold/ownership/auth"
	"github.com/leasehold-dev/leasehold/raftstore/access"
	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// openAuth comes after the APIs, whose rules it asks.
func (s *Server) openAuth() {
	s.auth = auth.New(auth.Config{
		Certificates: s.certificates,
		Lookup: func(id string) (c access.Credential, ok bool) {
			s.store.View(func(st *state.State) { c, ok = st.Credential(id) })
			return c, ok
		},
		LookupName: func(name string) (c access.Credential, ok bool) {
			s.store.View(func(st *state.State) { c, ok = st.CredentialByName(name) })
			return c, ok
		},
		Fresh: s.etcd.Fresh,
		Proven: func(from string) {
			for _, l := range s.guards {
				l.Proven(from)
			}
		},
		Rules:  []auth.Rules{s.api, s.etcd},
		Logger: s.log, Metrics: s.metrics,
		Audit: s.auditRecorder(),
	})
	if s.certificates != nil {
		s.certificates.OnRevoked(func(serial string) {
			s.auth.RevokedCertificate(serial)
			for _, l := range s.guards {
				l.Cut(serial)
			}
		})
		s.certificates.OnForgotten(func() { s.forgotten.Store(true) })
	}
}
