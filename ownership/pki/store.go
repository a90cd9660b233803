package pki

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leasehold-dev/leasehold/raftstore/access"
)

// Store is a process's certificate and whom it believes. It follows the files.
type Store struct {
	files   Files
	cluster string // "": that of the own certificate, if there is one
	client  bool   // the certificate may have any role, and may be missing
	log     *slog.Logger
	born    time.Time // the files' clock begins here

	next    atomic.Int64 // when the files are looked at again, since born
	current atomic.Pointer[material]

	mu     sync.Mutex // held while files are read
	stamps stamps     // of the files as they were read last
	fault  string     // why they could not be used; "" when they could
	nagged struct {   // when the log was last told of what is no longer good, and of what
		at   time.Time
		text string
	}

	listeners struct {
		sync.Mutex
		revoked   []func(serial string)
		forgotten []func()
	}
}

// material is one reading of the files, never changed.
type material struct {
	pair  *tls.Certificate // nil: a client without a certificate
	name  Name             // that of pair
	trust *trust
}

// Open reads and checks a server's files. The certificate must be that of a server
// of the cluster, which is the server's --gossip-label. Errors name the file.
func Open(f Files, cluster string, log *slog.Logger) (*Store, error) {
	for _, p := range []struct{ flag, path string }{{"--tls-cert-file", f.Cert}, {"--tls-key-file", f.Key}, {"--tls-ca-file", f.CA}} {
		if p.path == "" {
			return nil, fmt.Errorf("%s is missing: TLS needs a certificate, its key and the authorities; leasehold tls makes them", p.flag)
		}
	}
	if err := CheckCluster(cluster); err != nil {
		return nil, fmt.Errorf("--gossip-label names the cluster in certificates: %w", err)
	}
	s := &Store{files: f, cluster: cluster, log: log, born: time.Now()}
	if err := s.start(); err != nil {
		return nil, err
	}
	return s, nil
}

// Identity is who shows a certificate, which must be that of a connection of one
// of this Store's configurations: its signature is not looked at again, all that
// can change since is.
func (s *Store) Identity(cert *x509.Certificate) (access.Identity, error) {
	if cert == nil {
		return access.Identity{}, refuse(nil, ReasonNone, "there is none")
	}
	if err := checkTime(cert, time.Now()); err != nil {
		return access.Identity{}, err
	}
	if s.look().trust.isRevoked(cert) {
		return access.Identity{}, refuse(cert, ReasonRevoked, "its authority has revoked it; issue another")
	}
	n, err := admit(cert, demand{cluster: s.cluster})
	if err != nil {
		return access.Identity{}, err
	}
	return access.Identity{Source: access.Certificate, Name: n.Name, Role: n.Role, Scope: n.Scope, Serial: Serial(cert), Expires: cert.NotAfter}, nil
}

// OnRevoked has f called with the serial number of each certificate that a new
// list of revocations adds. f is called by whoever notices the new list, in a
// handshake or a call of Identity, Certificates or Reload, and should not block.
func (s *Store) OnRevoked(f func(serial string)) {
	s.listeners.Lock()
	defer s.listeners.Unlock()
	s.listeners.revoked = append(s.listeners.revoked, f)
}

// Info is a certificate in use, or a list of revoked ones.
type Info struct {
	Use     string // "server": the own one; "authority"; "list"
	Subject string // its URI, or what X.509 calls the subject; of a list: the authority
	Serial  string // of a list: its number, the same way
	// NotBefore and NotAfter bound its life.
	NotBefore, NotAfter time.Time
	File                string
}

// OnForgotten has f called when an authority is believed no more. Who calls it, and
// when, is as with OnRevoked.
func (s *Store) OnForgotten(f func()) {
	s.listeners.Lock()
	defer s.listeners.Unlock()
	s.listeners.forgotten = append(s.listeners.forgotten, f)
}

// Believes judges once more what a peer has shown in a connection of one of this
// Store's listeners: as Identity does, and that an authority still vouches for it.
// That a certificate has run out is Identity's to say.
func (s *Store) Believes(certs []*x509.Certificate) error {
	t, at := s.look().trust, time.Now()
	if at.After(certs[0].NotAfter) {
		at = certs[0].NotAfter
	}
	chains, err := t.chains(certs, x509.ExtKeyUsageClientAuth, at)
	if err != nil {
		return classify(certs[0], err, demand{cluster: s.cluster}, at)
	}
	if err := t.refuseRevoked(chains); err != nil {
		return err
	}
	_, err = s.Identity(certs[0])
	return err
}

// Certificates lists the own certificate, then the authorities that are believed,
// then their lists of what they have revoked, if those run out at all.
func (s *Store) Certificates() []Info {
	m := s.look()
	var list []Info
	if m.pair != nil {
		list = append(list, Info{"server", m.name.URI(), Serial(m.pair.Leaf), m.pair.Leaf.NotBefore, m.pair.Leaf.NotAfter, s.files.Cert})
	}
	for _, a := range m.trust.authorities {
		list = append(list, Info{"authority", a.Subject.String(), Serial(a), a.NotBefore, a.NotAfter, s.files.CA})
	}
	for _, l := range m.trust.lists {
		if !l.NextUpdate.IsZero() {
			list = append(list, Info{"list", l.Issuer.String(), fmt.Sprintf("%x", orZero(l.Number)), l.ThisUpdate, l.NextUpdate, s.files.CRL})
		}
	}
	return list
}

// start is the first reading, which must succeed.
func (s *Store) start() error {
	now := time.Now()
	s.stamps = stampsOf(s.files)
	t, err := loadTrust(s.files, now)
	if err != nil {
		return err
	}
	if err := t.stale(s.files.CRL, now); err != nil {
		return err
	}
	m := &material{trust: t}
	if s.files.Cert != "" {
		if m.pair, m.name, err = loadPair(s.files, now); err != nil {
			return err
		}
		if err := s.checkOwn(m, now); err != nil {
			return err
		}
		if t.isRevoked(m.pair.Leaf) {
			return s.ownFault(refuse(m.pair.Leaf, ReasonRevoked, "its authority has revoked it; issue another with leasehold tls issue"))
		}
	}
	if info := s.stamps[s.files.Key]; info != nil && info.Mode().Perm()&0o004 != 0 && runtime.GOOS != "windows" {
		s.log.Warn("the key of the certificate can be read by every user of this machine: chmod o-rwx", "file", s.files.Key)
	}
	s.current.Store(m)
	s.next.Store(int64(time.Since(s.born) + lookEvery))
	return nil
}

// checkOwn refuses a certificate of our own that others would refuse.
func (s *Store) checkOwn(m *material, now time.Time) error {
	d := demand{cluster: s.cluster, server: !s.client, usage: x509.ExtKeyUsageClientAuth}
	if !s.client {
		d.usage = x509.ExtKeyUsageServerAuth
	}
	if now.After(m.pair.Leaf.NotAfter) {
		now = m.pair.Leaf.NotAfter // it has run out while it was in use, which is another matter
	}
	certs := []*x509.Certificate{m.pair.Leaf}
	for _, der := range m.pair.Certificate[1:] {
		c, err := x509.ParseCertificate(der)
		if err != nil {
			return fmt.Errorf("%s: %w", s.files.Cert, err)
		}
		certs = append(certs, c)
	}
	if _, err := m.trust.chains(certs, d.usage, now); err != nil {
		err = s.ownFault(classify(m.pair.Leaf, err, d, now))
		var e *Error
		if errors.As(err, &e) && slices.ContainsFunc(m.trust.authorities, func(a *x509.Certificate) bool { return Serial(a) == e.Serial }) {
			e.File = s.files.CA // it is the authority that has run out
		}
		return err
	}
	_, err := admit(m.pair.Leaf, d)
	return s.ownFault(err)
}

// ownFault says that it is our own certificate that is refused.
func (s *Store) ownFault(err error) error {
	var e *Error
	if errors.As(err, &e) {
		e.File = s.files.Cert
	}
	return err
}

// newlyRevoked are the serials that a list has added.
func newlyRevoked(before, after *trust) []string {
	var serials []string
	for key := range maps.Keys(after.revoked) {
		if !before.revoked[key] {
			serials = append(serials, serialOfKey(key))
		}
	}
	return serials
}

// forgets reports whether an authority was believed before and is not after.
func forgets(before, after *trust) bool {
	return slices.ContainsFunc(before.authorities, func(a *x509.Certificate) bool { return !slices.ContainsFunc(after.authorities, a.Equal) })
}

func (s *Store) tellForgotten() {
	s.listeners.Lock()
	tell := s.listeners.forgotten
	s.listeners.Unlock()
	for _, f := range tell {
		f()
	}
}

func (s *Store) tellRevoked(serials []string) {
	s.listeners.Lock()
	tell := s.listeners.revoked
	s.listeners.Unlock()
	for _, serial := range serials {
		for _, f := range tell {
			f(serial)
		}
	}
}
