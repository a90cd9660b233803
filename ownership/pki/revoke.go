package pki

import (
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"time"
)

// MaxRevoked bounds a list: at some forty bytes each it stays below maxFile.
const MaxRevoked = 10_000

// Revoke adds serial numbers to the authority's list in the contents of a PEM file,
// which may be empty, and returns the new contents and list. Lists of others are
// kept. It is right with no serials too: the list is then the same for longer.
func (a *Authority) Revoke(file []byte, serials []*big.Int, life time.Duration) ([]byte, *x509.RevocationList, error) {
	if err := checkLife(life); err != nil {
		return nil, nil, err
	}
	now := time.Now()
	template := &x509.RevocationList{Number: big.NewInt(1), ThisUpdate: now.Add(-skew), NextUpdate: now.Add(life)}
	var others []byte
	for i, b := range blocks(file, "X509 CRL") {
		l, err := x509.ParseRevocationList(b)
		if err != nil {
			return nil, nil, fmt.Errorf("list %d of the file: %w", i+1, err)
		}
		if signerOf(l, []*x509.Certificate{a.Cert}) == nil {
			others = append(others, pem.EncodeToMemory(&pem.Block{Type: "X509 CRL", Bytes: b})...)
			continue
		}
		if next := new(big.Int).Add(orZero(l.Number), big.NewInt(1)); next.Cmp(template.Number) > 0 {
			template.Number = next
		}
		template.RevokedCertificateEntries = append(template.RevokedCertificateEntries, l.RevokedCertificateEntries...)
	}
	for _, serial := range serials {
		if !slices.ContainsFunc(template.RevokedCertificateEntries, func(e x509.RevocationListEntry) bool { return e.SerialNumber.Cmp(serial) == 0 }) {
			template.RevokedCertificateEntries = append(template.RevokedCertificateEntries, x509.RevocationListEntry{SerialNumber: serial, RevocationTime: now})
		}
	}
	if n := len(template.RevokedCertificateEntries); n > MaxRevoked {
		return nil, nil, fmt.Errorf("%d revoked certificates: at most %d; make a new authority, which nobody old belongs to", n, MaxRevoked)
	}
	der, err := x509.CreateRevocationList(rand.Reader, template, a.Cert, a.key)
	if err != nil {
		return nil, nil, fmt.Errorf("sign the list of revocations: %w", err)
	}
	list, err := x509.ParseRevocationList(der)
	if err != nil {
		return nil, nil, err
	}
	return append(pem.EncodeToMemory(&pem.Block{Type: "X509 CRL", Bytes: der}), others...), list, nil
}

// Issued reports whether the authority has signed a certificate.
func (a *Authority) Issued(c *x509.Certificate) bool { return c.CheckSignatureFrom(a.Cert) == nil }

// ParseSerial reads a serial number as Serial writes it.
func ParseSerial(s string) (*big.Int, error) {
	n, ok := new(big.Int).SetString(s, 16)
	if !ok || n.Sign() <= 0 || len(s) > 40 || strings.ContainsAny(s, "+-_") {
		return nil, fmt.Errorf("serial %q: want up to 40 hexadecimal digits, as leasehold tls inspect shows", clip(s))
	}
	return n, nil
}
