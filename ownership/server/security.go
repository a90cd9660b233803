package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/leasehold-dev/leasehold/ownership/listen"
	"github.com/leasehold-dev/leasehold/ownership/pki"
	"github.com/leasehold-dev/leasehold/raftstore"
	"github.com/leasehold-dev/leasehold/raftstore/access"
)

// DefaultMaxStreams is far above what one client has open, waiting for locks
// included, and bounds what one connection costs.
const DefaultMaxStreams = 4096

// maxHeaderBytes bounds the metadata of a call, for which memory is taken before it
// is known who calls. The identity that one server hands to another is the largest.
const maxHeaderBytes = 64 << 10

// Bounds of the limits.
const (
	leastRequestBytes = 64 << 10
	mostRequestBytes  = 16 << 20
	mostStreams       = 1 << 20
	mostConnections   = 1 << 20
)

// secure reports whether the server asks who calls.
func (c *Config) secure() bool { return c.TLS != pki.Files{} }

// hasKeyring reports whether the data directory has keys of gossip.
func (c *Config) hasKeyring() bool {
	path := c.keyringFile()
	if path == "" {
		return false
	}
	_, err := os.Stat(path)
	return err == nil
}

// missing says what a listener off loopback lacks, or "".
func (c *Config) missing() string {
	if c.Insecure {
		return ""
	}
	const or = "; or bind to 127.0.0.1, or accept the risk with --insecure"
	switch encrypted := len(c.GossipKey) > 0 || c.hasKeyring(); {
	case !c.secure() && !encrypted:
		return "TLS and a gossip key are needed off loopback: --tls-cert-file, --tls-key-file and --tls-ca-file (leasehold tls ca create, leasehold tls issue) and --gossip-key-file (leasehold gossip keyring generate)" + or
	case !c.secure():
		return "TLS is needed off loopback: --tls-cert-file, --tls-key-file and --tls-ca-file (leasehold tls ca create, leasehold tls issue)" + or
	case !encrypted:
		return "a gossip key is needed off loopback: --gossip-key-file (leasehold gossip keyring generate)" + or
	}
	return ""
}

// checkSecurity looks at what can be seen without reading files.
func (c *Config) checkSecurity(refuse func(flag, value, limit string)) {
	if c.secure() {
		for _, f := range []struct{ flag, value string }{
			{"--tls-cert-file", c.TLS.Cert}, {"--tls-key-file", c.TLS.Key}, {"--tls-ca-file", c.TLS.CA},
		} {
			if f.value == "" {
				refuse(f.flag, "", "is missing: TLS needs a certificate, its key and the authority that others are believed by (leasehold tls issue makes them)")
			}
		}
		if err := pki.CheckCluster(c.GossipLabel); err != nil {
			refuse("--gossip-label", c.GossipLabel, "it names the cluster in certificates: "+err.Error())
		}
	}
	for _, n := range []struct {
		flag              string
		value, from, most int
	}{
		{"--max-connections", c.Limits.Connections, 0, mostConnections},
		{"--max-connections-per-address", c.Limits.PerAddress, 0, mostConnections},
		{"--max-handshakes", c.Limits.Handshakes, 0, mostConnections},
		{"--max-streams", c.MaxStreams, 0, mostStreams},
		{"--max-request-bytes", c.MaxRequestBytes, leastRequestBytes, mostRequestBytes},
	} {
		if (n.value < n.from || n.value > n.most) && (n.value != 0 || n.from == 0) {
			refuse(n.flag, strconv.Itoa(n.value), fmt.Sprintf("want %d to %d", n.from, n.most))
		}
	}
}

// CheckCertificates reads the TLS files as New does, and says why New would refuse
// them. It changes nothing and tells no log.
func (c *Config) CheckCertificates() error {
	if !c.secure() {
		return nil
	}
	id, err := c.id(raftstore.StoredID(c.DataDir))
	if err != nil {
		return err
	}
	_, err = c.openCertificates(id, slog.New(slog.DiscardHandler))
	return err
}

// openCertificates reads the TLS files. The certificate must be that of the server
// whose id is id.
func (c *Config) openCertificates(id string, log *slog.Logger) (*pki.Store, error) {
	store, err := pki.Open(c.TLS, c.GossipLabel, log)
	if err != nil {
		return nil, err
	}
	for _, own := range store.Certificates() {
		if own.Use != "server" {
			continue
		}
		name, err := pki.ParseName(own.Subject)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", own.File, err)
		}
		if name.Name != id {
			return nil, fmt.Errorf("%s is the certificate of server %q, and this is server %q: set --id, or issue another with leasehold tls issue --role server %s",
				own.File, name.Name, id, id)
		}
	}
	return store, nil
}

// ReloadCertificates reads the TLS files anew. Files with a fault change nothing.
// Without it, they are looked at once a second while there are handshakes.
func (s *Server) ReloadCertificates() error {
	if s.certificates == nil {
		return nil
	}
	return s.certificates.Reload()
}

// guard puts the limits, and TLS if there is any, before what a listener serves.
func (s *Server) guard(name string, ln net.Listener, use pki.Use) *listen.Listener {
	_, _, files := processFigures()
	limits, reduced := s.cfg.limits(files)
	if reduced && name == "grpc" { // the same for each listener
		level := slog.LevelWarn
		if s.cfg.Limits.Connections == listen.DefaultConnections {
			level = slog.LevelInfo // nobody has asked for so many
		}
		s.log.Log(context.Background(), level, "--max-connections is more than the open files that this process may have allow; raise its limit (ulimit -n, LimitNOFILE)",
			"max_connections", s.cfg.Limits.Connections, "used", limits.Connections, "open_files", files)
	}
	cfg := listen.Config{Name: name, Limits: limits, Metrics: s.metrics, Logger: s.log}
	if s.certificates == nil {
		// Everybody may do everything here, whom a bound would not keep from it.
		if host, _, err := net.SplitHostPort(ln.Addr().String()); err == nil && isLoopback(host) {
			cfg.Limits.PerAddress = 0
		}
	} else {
		cfg.TLS = s.certificates.Config(use)
		cfg.Verify = s.certificates.Believes
		// Servers stay connected among themselves: what they may is looked at with
		// each request, and an election is not worth a date.
		cfg.EndExpired = use != pki.UseRaft
		cfg.Reason = pki.ReasonOf
	}
	l := listen.New(ln, cfg)
	s.guards = append(s.guards, l)
	return l
}

// certified is the name of the server at the other end of a connection.
func (s *Server) certified(conn net.Conn) (string, error) {
	id, err := s.peerOf(conn)
	switch {
	case err != nil:
		return "", err
	case id.Role != access.Server:
		return "", fmt.Errorf("the certificate is that of %s, not of a server", id)
	}
	return id.Name, nil
}

func (s *Server) peerOf(conn net.Conn) (access.Identity, error) {
	t, ok := conn.(*tls.Conn)
	if !ok {
		return access.Identity{}, errors.New("the connection is not encrypted")
	}
	certs := t.ConnectionState().PeerCertificates
	if len(certs) == 0 {
		return access.Identity{}, errors.New("there is no certificate")
	}
	return s.certificates.Identity(certs[0])
}

// dialOptions are those of gRPC connections to other servers.
func (s *Server) dialOptions() []grpc.DialOption {
	creds := insecure.NewCredentials()
	if s.certificates != nil {
		creds = credentials.NewTLS(s.certificates.Config(pki.UsePeer))
	}
	return append(s.cfg.hooks.dialOptions(), grpc.WithTransportCredentials(creds))
}

// grpcOptions are those of the gRPC server that have to do with its listener.
func (s *Server) grpcOptions() []grpc.ServerOption {
	streams := listen.Streams{Max: s.cfg.MaxStreams, Metrics: s.metrics}
	if s.certificates != nil {
		streams.Exempt = func(state tls.ConnectionState) bool {
			if len(state.PeerCertificates) == 0 {
				return false
			}
			id, err := s.certificates.Identity(state.PeerCertificates[0])
			return err == nil && id.Role == access.Server
		}
	}
	opts := []grpc.ServerOption{
		grpc.Creds(listen.Credentials(streams)), grpc.ConnectionTimeout(listen.DefaultHandshakeTimeout), grpc.StatsHandler(tooLarge{s.metrics}),
		grpc.MaxHeaderListSize(maxHeaderBytes),
	}
	if s.cfg.MaxStreams > 0 {
		opts = append(opts, grpc.MaxConcurrentStreams(uint32(s.cfg.MaxStreams)))
	}
	return opts
}
