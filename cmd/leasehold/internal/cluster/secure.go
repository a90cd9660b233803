package cluster

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/grpc/credentials"

	"github.com/leasehold-dev/leasehold/ownership/pki"
	"github.com/leasehold-dev/leasehold/raftstore/access"
)

// Security makes the certificates of one cluster, and of those who use it. Its
// authority's key is never written.
type Security struct {
	dir       string
	authority *pki.Authority
	ca        string
	gossipKey string
	operator  pki.Files // looks at the servers for the Cluster
}

// securityLife is longer than any cluster of this package lives.
const securityLife = 24 * time.Hour

// NewSecurity makes an authority and a gossip key, with files below dir.
func NewSecurity(dir string) (*Security, error) {
	// The name of a cluster is its servers' --gossip-label, which has a default.
	authority, pair, err := pki.NewAuthority("leasehold", securityLife)
	if err != nil {
		return nil, fmt.Errorf("make an authority: %w", err)
	}
	key := make([]byte, 32)
	if _, err := rand.Read(key); err != nil {
		return nil, fmt.Errorf("make a gossip key: %w", err)
	}
	s := &Security{dir: dir, authority: authority, ca: filepath.Join(dir, "ca.pem"), gossipKey: filepath.Join(dir, "gossip.key")}
	err = errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(s.ca, pair.Cert, 0o600),
		os.WriteFile(s.gossipKey, []byte(base64.StdEncoding.EncodeToString(key)+"\n"), 0o600))
	if err != nil {
		return nil, fmt.Errorf("write the authority: %w", err)
	}
	s.operator, err = s.Issue(access.Operator, "cluster")
	return s, err
}

// CA is the file with the authority's certificate.
func (s *Security) CA() string { return s.ca }

// Issue makes a certificate without bounds.
func (s *Security) Issue(role access.Role, name string) (pki.Files, error) {
	base := filepath.Join(s.dir, role.String()+"-"+name)
	f := pki.Files{Cert: base + ".pem", Key: base + "-key.pem", CA: s.ca}
	pair, _, err := s.authority.Issue(pki.Request{Name: pki.Name{Role: role, Name: name, Scope: access.Everywhere()}, Life: securityLife})
	if err == nil {
		err = errors.Join(os.WriteFile(f.Key, pair.Key, 0o600), os.WriteFile(f.Cert, pair.Cert, 0o600))
	}
	if err != nil {
		return pki.Files{}, fmt.Errorf("issue the certificate of %s %s: %w", role, name, err)
	}
	return f, nil
}

// server are the flags of a server, which gets a certificate of its own.
func (s *Security) server(id string) ([]string, error) {
	f, err := s.Issue(access.Server, id)
	if err != nil {
		return nil, err
	}
	return []string{"--tls-cert-file", f.Cert, "--tls-key-file", f.Key, "--tls-ca-file", f.CA, "--gossip-key-file", s.gossipKey}, nil
}

// transport is how the Cluster itself talks to the servers.
func (s *Security) transport() (credentials.TransportCredentials, error) {
	cfg, err := pki.Client(s.operator)
	if err != nil {
		return nil, fmt.Errorf("use the operator's certificate: %w", err)
	}
	return credentials.NewTLS(cfg), nil
}
