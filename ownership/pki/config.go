package pki

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// Use is what a TLS configuration is for.
type Use int

// The uses.
const (
	// UseAPI is the gRPC listener: who has a certificate shows it, and it must be
	// good; others show a credential later.
	UseAPI Use = iota + 1
	// UseHTTP is the HTTP listener, under the rules of UseAPI.
	UseHTTP
	// UseRaft is the Raft listener: servers of the cluster, nobody else.
	UseRaft
	// UsePeer dials another server of the cluster, as a server.
	UsePeer
)

// Config is the TLS configuration for a use. It follows the files for as long as
// it is used; what the caller adds to it before that, such as NextProtos, holds.
//
// The error of a refused handshake is an *Error.
func (s *Store) Config(use Use) *tls.Config {
	switch use {
	case UseAPI:
		return s.serverConfig(demand{optional: true, usage: x509.ExtKeyUsageClientAuth, cluster: s.cluster}, "h2")
	case UseHTTP:
		return s.serverConfig(demand{optional: true, usage: x509.ExtKeyUsageClientAuth, cluster: s.cluster}, "h2", "http/1.1")
	case UseRaft:
		return s.serverConfig(demand{server: true, usage: x509.ExtKeyUsageClientAuth, cluster: s.cluster})
	case UsePeer:
		return s.clientConfig(demand{server: true, usage: x509.ExtKeyUsageServerAuth, cluster: s.cluster})
	}
	panic(fmt.Sprintf("pki: no use %d", use))
}

// Client is the TLS configuration of a worker, router or command: it wants a
// server of the cluster, whose certificate CA has signed, whatever host it is
// dialled by. Cert and Key may be empty; with them the cluster must be their own.
// It follows the files as Store.Config does.
func Client(f Files) (*tls.Config, error) {
	s := &Store{files: f, client: true, log: slog.Default(), born: time.Now()}
	switch {
	case f.CA == "":
		return nil, errors.New("--tls-ca-file is missing: name the file with the authority's certificate, ca.pem of leasehold tls ca create")
	case (f.Cert == "") != (f.Key == ""):
		return nil, errors.New("--tls-cert-file and --tls-key-file go together: name both or neither")
	}
	if err := s.start(); err != nil {
		return nil, err
	}
	return s.clientConfig(demand{server: true, usage: x509.ExtKeyUsageServerAuth}), nil
}

// base is what all configurations share. Without tickets nobody resumes a
// connection, which would be judged by what was known when it was made.
func base() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS13, SessionTicketsDisabled: true}
}

// serverConfig is for a listener. The certificate is asked for and judged by
// verify alone, not by package tls, whose list of authorities is fixed.
func (s *Store) serverConfig(d demand, protocols ...string) *tls.Config {
	c := base()
	c.NextProtos = protocols
	c.ClientAuth = tls.RequestClientCert
	c.VerifyConnection = func(cs tls.ConnectionState) error {
		return s.look().trust.verify(cs, d, time.Now())
	}
	c.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return s.look().pair, nil }
	// Browsers offer those certificates that an authority of this list has signed.
	c.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		now := c.Clone()
		now.GetConfigForClient = nil
		now.ClientCAs = s.look().trust.pool
		return now, nil
	}
	return c
}

// clientConfig is for dialling.
func (s *Store) clientConfig(d demand) *tls.Config {
	c := base()
	// Package tls would compare the host name, which says nothing here, with roots
	// that cannot be replaced once the configuration is in use. This switches that
	// off and nothing else: verify below takes its place, and a handshake does not
	// succeed without it.
	c.InsecureSkipVerify = true
	c.VerifyConnection = func(cs tls.ConnectionState) error {
		m := s.look()
		d := d
		if d.cluster == "" {
			d.cluster = m.name.Cluster // "" without an own certificate
		}
		return m.trust.verify(cs, d, time.Now())
	}
	c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		pair := s.look().pair
		if pair == nil {
			return &tls.Certificate{}, nil // none
		}
		// The server would only say that it is bad.
		if err := checkTime(pair.Leaf, time.Now()); err != nil {
			return nil, s.ownFault(err)
		}
		return pair, nil
	}
	return c
}
