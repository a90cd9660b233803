package pki

import (
	"bytes"
	"crypto/x509"
	"errors"
	"fmt"
	"math/big"
	"os"
	"time"
)

const (
	// lookEvery is how often files are looked at, at most.
	lookEvery = time.Second
	// nagEvery is how often the log is told of what is no longer good.
	nagEvery = time.Hour
)

// stamps are the files as the file system describes them, to see that one is new.
type stamps map[string]os.FileInfo

func stampsOf(f Files) stamps {
	st := make(stamps)
	for _, p := range f.paths() {
		if info, err := os.Stat(p); err == nil {
			st[p] = info
		}
	}
	return st
}

// same compares time, size and inode: links that are swapped, as container
// platforms do, change the inode alone.
func (a stamps) same(b stamps) bool {
	if len(a) != len(b) {
		return false
	}
	for p, x := range a {
		y, ok := b[p]
		if !ok || !x.ModTime().Equal(y.ModTime()) || x.Size() != y.Size() || !os.SameFile(x, y) {
			return false
		}
	}
	return true
}

// look is the material in use. Once a second one caller finds out whether there
// are new files, and takes them; the others go on with what there is.
func (s *Store) look() *material {
	since := time.Since(s.born)
	next := s.next.Load()
	if since < time.Duration(next) || !s.next.CompareAndSwap(next, int64(since+lookEvery)) {
		return s.current.Load()
	}
	if err := s.reload(false); err != nil {
		s.log.Error("new TLS files cannot be used, the old ones stay in use", "error", err)
	}
	return s.current.Load()
}

// Reload reads the files now. An error says which cannot be used, and that the old
// one stays in use.
func (s *Store) Reload() error {
	if err := s.reload(true); err != nil {
		return fmt.Errorf("%w; the old one stays in use", err)
	}
	return nil
}

// reload takes what of the files can be used. Without force it reads only what is
// new or could not be used before, and tells each fault once.
func (s *Store) reload(force bool) error {
	s.mu.Lock()
	now := time.Now()
	st := stampsOf(s.files) // before they are read: what comes later differs from these
	if !force && s.fault == "" && st.same(s.stamps) {
		s.nag(s.current.Load(), now)
		s.mu.Unlock()
		return nil
	}
	old := s.current.Load()
	m, err := s.refresh(old, now)
	s.current.Store(m)
	s.stamps = st
	known := s.fault
	s.fault = ""
	if err != nil {
		s.fault = err.Error()
	}
	if m != old && err == nil {
		s.announce(m)
	}
	s.nag(m, now)
	s.mu.Unlock()

	s.tellRevoked(newlyRevoked(old.trust, m.trust))
	if forgets(old.trust, m.trust) {
		s.tellForgotten()
	}
	if !force && err != nil && err.Error() == known {
		return nil
	}
	return err
}

// refresh makes new material of the files, and of the old where a file cannot be
// used. Authorities and lists count even if the own certificate is no good; they
// do not count if neither the new nor the old certificate comes from them, for
// that is a wrong file.
func (s *Store) refresh(old *material, now time.Time) (*material, error) {
	m := *old
	t, trustErr := s.newTrust(old.trust, now)
	if trustErr == nil {
		m.trust = t
	}
	if s.files.Cert == "" {
		return &m, trustErr
	}
	pair, name, pairErr := loadPair(s.files, now)
	if pairErr == nil {
		m.pair, m.name = pair, name
		if pairErr = s.checkOwn(&m, now); pairErr == nil {
			return &m, trustErr
		}
		m.pair, m.name = old.pair, old.name
	}
	if err := s.checkOwn(&m, now); err != nil {
		trustErr = errors.Join(trustErr, fmt.Errorf("%s: our own certificate is from none of its authorities: %w", s.files.CA, err))
		m.trust = old.trust
	}
	return &m, errors.Join(trustErr, pairErr)
}

// newTrust reads authorities and lists. A list that is older than the one in use,
// or is missing, would take a revocation back.
func (s *Store) newTrust(old *trust, now time.Time) (*trust, error) {
	t, err := loadTrust(s.files, now)
	if err != nil {
		return nil, err
	}
	for _, was := range old.lists {
		if signerOf(was, t.authorities) == nil {
			continue // who signed it is believed no more, and with it all that it has signed
		}
		l := listOf(t.lists, was.RawIssuer)
		switch {
		case l == nil:
			return nil, fmt.Errorf("%s: the list of revocations of %q, which is in use, is not in it", s.files.CRL, clip(was.Issuer.String()))
		case orZero(l.Number).Cmp(orZero(was.Number)) < 0:
			return nil, fmt.Errorf("%s: the list of revocations of %q has number %d, and the one in use has %d: it is older", s.files.CRL, clip(l.Issuer.String()), l.Number, was.Number)
		}
	}
	return t, nil
}

// listOf is the newest list of an issuer, or nil.
func listOf(lists []*x509.RevocationList, rawIssuer []byte) *x509.RevocationList {
	var newest *x509.RevocationList
	for _, l := range lists {
		if bytes.Equal(l.RawIssuer, rawIssuer) && (newest == nil || orZero(l.Number).Cmp(orZero(newest.Number)) > 0) {
			newest = l
		}
	}
	return newest
}

func orZero(n *big.Int) *big.Int {
	if n == nil {
		return new(big.Int)
	}
	return n
}

// announce logs what is in use from now on.
func (s *Store) announce(m *material) {
	args := []any{"authorities", len(m.trust.authorities), "revoked", len(m.trust.revoked)}
	if m.pair != nil {
		args = append(args, "subject", m.name.URI(), "serial", Serial(m.pair.Leaf), "expires", day(m.pair.Leaf.NotAfter))
	}
	s.log.Info("TLS files read again", args...)
}

// nag logs, now and then, what of the material in use has run out or is revoked.
func (s *Store) nag(m *material, now time.Time) {
	var errs []error
	if m.pair != nil {
		if err := checkTime(m.pair.Leaf, now); err != nil {
			errs = append(errs, s.ownFault(err))
		} else if err := s.checkOwn(m, now); err != nil { // an authority has run out
			errs = append(errs, err)
		}
		if m.trust.isRevoked(m.pair.Leaf) {
			errs = append(errs, s.ownFault(refuse(m.pair.Leaf, ReasonRevoked, "its authority has revoked it")))
		}
	}
	if err := m.trust.stale(s.files.CRL, now); err != nil {
		errs = append(errs, err)
	}
	if len(errs) == 0 {
		s.nagged.text = ""
		return
	}
	err := errors.Join(errs...)
	if text := err.Error(); text != s.nagged.text || now.Sub(s.nagged.at) >= nagEvery {
		s.nagged.at, s.nagged.text = now, text
		s.log.Error("TLS files are no longer good: replace them, no restart is needed", "error", err)
	}
}
