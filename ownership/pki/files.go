package pki

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"
)

// maxFile bounds a file of certificates.
const maxFile = 1 << 20

// Files are the paths of PEM files.
type Files struct {
	Cert string // the own certificate, with those of authorities between it and CA behind it
	Key  string // its private key
	CA   string // the certificates of the authorities that are believed, also several
	CRL  string // lists of revoked certificates that they have signed; may be empty
}

// Any reports whether a file is named at all: whether TLS is wanted.
func (f Files) Any() bool { return f != Files{} }

func (f Files) paths() []string {
	var paths []string
	for _, p := range []string{f.Cert, f.Key, f.CA, f.CRL} {
		if p != "" {
			paths = append(paths, p)
		}
	}
	return paths
}

// readFile reads a file that is not larger than any such file can be. Its error
// names the file.
func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, err
	}
	if len(b) > maxFile {
		return nil, fmt.Errorf("%s: more than %d bytes: not a file of certificates", path, maxFile)
	}
	return b, nil
}

// blocks are the contents of the PEM blocks of one type, in their order.
func blocks(data []byte, kind string) [][]byte {
	var found [][]byte
	for {
		var b *pem.Block
		if b, data = pem.Decode(data); b == nil {
			return found
		}
		if b.Type == kind {
			found = append(found, b.Bytes)
		}
	}
}

// parseCertificates reads all certificates of a PEM file; none is an error.
func parseCertificates(data []byte) ([]*x509.Certificate, error) {
	var certs []*x509.Certificate
	for _, b := range blocks(data, "CERTIFICATE") {
		c, err := x509.ParseCertificate(b)
		if err != nil {
			return nil, fmt.Errorf("certificate %d: %w", len(certs)+1, err)
		}
		certs = append(certs, c)
	}
	if len(certs) == 0 {
		return nil, errors.New("no PEM block CERTIFICATE in it")
	}
	return certs, nil
}

// parseLists reads the lists of revocations of a PEM file that authorities have
// signed. Those under the names of others are left out, as a rotation leaves them
// behind: but a file of nothing else is an error.
func parseLists(data []byte, authorities []*x509.Certificate) ([]*x509.RevocationList, error) {
	var lists []*x509.RevocationList
	var foreign error
	for i, b := range blocks(data, "X509 CRL") {
		l, err := x509.ParseRevocationList(b)
		if err != nil {
			return nil, fmt.Errorf("list %d: %w", i+1, err)
		}
		if signerOf(l, authorities) == nil {
			foreign = fmt.Errorf("list %d of %q: signed by no authority of the CA file", i+1, clip(l.Issuer.String()))
			if slices.ContainsFunc(authorities, func(a *x509.Certificate) bool { return bytes.Equal(a.RawSubject, l.RawIssuer) }) {
				return nil, foreign // it is damaged, or not who it says
			}
			continue
		}
		for _, ext := range l.Extensions {
			if ext.Critical { // such as of a list that is only a part
				return nil, fmt.Errorf("list %d of %q: extension %v is critical and not understood", i+1, clip(l.Issuer.String()), ext.Id)
			}
		}
		lists = append(lists, l)
	}
	switch {
	case len(lists) > 0:
		return lists, nil
	case foreign != nil:
		return nil, foreign
	}
	return nil, errors.New("no PEM block X509 CRL in it")
}

func signerOf(l *x509.RevocationList, authorities []*x509.Certificate) *x509.Certificate {
	for _, a := range authorities {
		if bytes.Equal(a.RawSubject, l.RawIssuer) && l.CheckSignatureFrom(a) == nil {
			return a
		}
	}
	return nil
}

// loadPair reads the own certificate and key. They are for now: what has run out,
// or begins later, is an error.
func loadPair(f Files, now time.Time) (*tls.Certificate, Name, error) {
	certPEM, err := readFile(f.Cert)
	if err != nil {
		return nil, Name{}, fmt.Errorf("read the certificate: %w", err)
	}
	keyPEM, err := readFile(f.Key)
	if err != nil {
		return nil, Name{}, fmt.Errorf("read the certificate's key: %w", err)
	}
	if _, err := parseCertificates(certPEM); err != nil {
		return nil, Name{}, fmt.Errorf("%s: %w", f.Cert, err)
	}
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return nil, Name{}, fmt.Errorf("%s is not the key of %s: %w; replace both", f.Key, f.Cert, err)
	}
	own := func(err error) error {
		var e *Error
		if errors.As(err, &e) {
			e.File = f.Cert
		}
		return err
	}
	name, err := NameOf(pair.Leaf)
	if err != nil {
		return nil, Name{}, own(err)
	}
	if err := checkTime(pair.Leaf, now); err != nil {
		return nil, Name{}, own(err)
	}
	return &pair, name, nil
}

// loadTrust reads the authorities and what they have revoked.
func loadTrust(f Files, now time.Time) (*trust, error) {
	data, err := readFile(f.CA)
	if err != nil {
		return nil, fmt.Errorf("read the authorities: %w", err)
	}
	all, err := parseCertificates(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.CA, err)
	}
	t := &trust{pool: x509.NewCertPool(), revoked: make(map[string]bool)}
	var fault error
	usable := false
	for _, c := range all {
		if !c.IsCA || !c.BasicConstraintsValid || c.KeyUsage&x509.KeyUsageCertSign == 0 {
			return nil, fmt.Errorf("%s: the certificate of %s is not that of an authority; the file wants those of --tls-ca-file alone", f.CA, subjectOf(c))
		}
		if err := checkTime(c, now); err != nil {
			err.File, fault = f.CA, err
			if err.Reason == ReasonExpired { // a rotation has left it behind
				continue
			}
		} else {
			usable = true
		}
		t.pool.AddCert(c)
		t.authorities = append(t.authorities, c)
	}
	if !usable {
		return nil, fault
	}
	if f.CRL == "" {
		return t, nil
	}
	if data, err = readFile(f.CRL); err != nil {
		return nil, fmt.Errorf("read the list of revocations: %w; leasehold tls revoke writes one", err)
	}
	if t.lists, err = parseLists(data, all); err != nil {
		return nil, fmt.Errorf("%s: %w", f.CRL, err)
	}
	// Nobody renews the list of an authority that has run out, nor has to.
	t.lists = slices.DeleteFunc(t.lists, func(l *x509.RevocationList) bool { return signerOf(l, t.authorities) == nil })
	for _, l := range t.lists {
		for _, e := range l.RevokedCertificateEntries {
			t.revoked[revokedKey(l.RawIssuer, fmt.Sprintf("%x", e.SerialNumber))] = true
		}
	}
	return t, nil
}

// stale is an error when a list is past its next update.
func (t *trust) stale(file string, now time.Time) error {
	for _, l := range t.lists {
		if !l.NextUpdate.IsZero() && now.After(l.NextUpdate) {
			return fmt.Errorf("%s: the list of revocations of %q was to be replaced by %s; write a new one with leasehold tls revoke", file, clip(l.Issuer.String()), day(l.NextUpdate))
		}
	}
	return nil
}

func checkTime(c *x509.Certificate, now time.Time) *Error {
	switch {
	case now.After(c.NotAfter):
		return refuse(c, ReasonExpired, "it expired on %s", day(c.NotAfter))
	case now.Before(c.NotBefore):
		return refuse(c, ReasonBad, "it is valid from %s on, and it is %s: is the clock right?", day(c.NotBefore), day(now))
	}
	return nil
}
