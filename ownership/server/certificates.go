package server

import (
	"crypto/x509"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"github.com/leasehold-dev/leasehold/ownership/pki"
)

// A certificate is said to run out when the fifth part of its life is left, and
// again after a day.
const (
	shortShare = 5
	shortAgain = 24 * time.Hour
)

// shortWarnings are when the log was told of certificates that run out, by serial
// number. They belong to the watching goroutine.
type shortWarnings map[string]time.Time

// watchCertificates has new files read, also while nobody connects, shows how long
// what is in use will last, and warns. What has run out, the store of certificates
// says itself.
func (s *Server) watchCertificates(now time.Time) {
	if s.certificates == nil {
		return
	}
	all := s.certificates.Certificates()
	if s.forgotten.Swap(false) {
		for _, l := range s.guards {
			l.Recheck(s.unbelieved)
		}
	}
	for _, use := range []string{"server", "authority"} {
		s.metrics.CertificateExpires(use, firstEnd(all, use))
	}
	for _, c := range all {
		left := c.NotAfter.Sub(now)
		if left <= 0 || left >= c.NotAfter.Sub(c.NotBefore)/shortShare {
			continue
		}
		if last, ok := s.shortWarnings[c.Serial]; ok && now.Sub(last) < shortAgain {
			continue
		}
		s.shortWarnings[c.Serial] = now
		s.log.Warn("a certificate, or a list of revoked ones, runs out: replace the file, no restart is needed",
			"use", c.Use, "subject", c.Subject, "serial", c.Serial, "file", c.File, "expires", c.NotAfter.UTC(), "left", left.Round(time.Second))
	}
}

// unbelieved says that no authority vouches for what a peer has shown any more. A
// connection between servers outlives its certificates; see guard.
func (s *Server) unbelieved(certs []*x509.Certificate) error {
	if err := s.certificates.Believes(certs); pki.ReasonOf(err) == pki.ReasonWrongCA {
		return err
	}
	return nil
}

// firstEnd is when the first certificate of a use runs out; zero: there is none.
func firstEnd(all []pki.Info, use string) (first time.Time) {
	for _, c := range all {
		if c.Use == use && (first.IsZero() || c.NotAfter.Before(first)) {
			first = c.NotAfter
		}
	}
	return first
}

// certificateHealth adds the certificates in use.
func (s *Server) certificateHealth(m *leaseholdv1.ServerHealth) {
	if s.certificates == nil {
		return
	}
	for _, c := range s.certificates.Certificates() {
		m.Certificates = append(m.Certificates, &leaseholdv1.CertificateInfo{
			Use: c.Use, Subject: c.Subject, Serial: c.Serial, File: c.File, NotAfter: timestamppb.New(c.NotAfter),
		})
	}
}
