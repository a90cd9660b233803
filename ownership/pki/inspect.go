package pki

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"time"
)

// Kinds of things in a file.
const (
	KindCertificate = "certificate"
	KindAuthority   = "authority"
	KindRevocations = "revocations"
)

// States of them.
const (
	StateValid   = "valid"
	StateEarly   = "early"   // valid later
	StateExpired = "expired" // of a list: past its next update
	StateRevoked = "revoked"
)

// Description is a certificate or a list of revocations, for people and scripts.
type Description struct {
	File string `json:"file"`
	Kind string `json:"kind"`
	// State is as of the time of Inspect; only MarkRevoked finds StateRevoked.
	State string `json:"state"`
	// URI is the name as the certificate has it, the rest of the name what it
	// means. Fault says why it means nothing.
	URI         string   `json:"uri,omitempty"`
	Fault       string   `json:"fault,omitempty"`
	Cluster     string   `json:"cluster,omitempty"`
	Role        string   `json:"role,omitempty"`
	Name        string   `json:"name,omitempty"`
	Keyspaces   []string `json:"keyspaces,omitempty"`
	KeyPrefixes []string `json:"key_prefixes,omitempty"`
	Hosts       []string `json:"hosts,omitempty"`
	Subject     string   `json:"subject,omitempty"`
	Issuer      string   `json:"issuer"`
	Serial      string   `json:"serial,omitempty"`
	// Number is that of a list, Revoked the serial numbers in it.
	Number    *big.Int  `json:"number,omitempty"`
	Revoked   []string  `json:"revoked,omitempty"`
	NotBefore time.Time `json:"not_before"`
	NotAfter  time.Time `json:"not_after"` // of a list: its next update; zero: it says none

	rawIssuer string
}

// ErrOnlyKeys is that a file has nothing that may be shown.
var ErrOnlyKeys = errors.New("neither a certificate nor a list of revocations in it; keys are not shown")

// InspectFile describes all certificates and lists of a PEM file. Keys are never
// shown, and a file of nothing else is an error.
func InspectFile(path string, now time.Time) ([]Description, error) {
	data, err := readFile(path)
	if err != nil {
		return nil, err
	}
	list, err := inspect(data, now)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	for i := range list {
		list[i].File = path
	}
	return list, nil
}

func inspect(data []byte, now time.Time) ([]Description, error) {
	var list []Description
	keys := 0
	for n := 1; ; n++ {
		var b *pem.Block
		if b, data = pem.Decode(data); b == nil {
			break
		}
		switch b.Type {
		case "CERTIFICATE":
			c, err := x509.ParseCertificate(b.Bytes)
			if err != nil {
				return nil, fmt.Errorf("block %d: %w", n, err)
			}
			list = append(list, describeCertificate(c, now))
		case "X509 CRL":
			l, err := x509.ParseRevocationList(b.Bytes)
			if err != nil {
				return nil, fmt.Errorf("block %d: %w", n, err)
			}
			list = append(list, describeList(l, now))
		default:
			keys++
		}
	}
	switch {
	case len(list) == 0 && keys > 0:
		return nil, ErrOnlyKeys
	case len(list) == 0:
		return nil, errors.New("no PEM block in it: not a file of certificates")
	}
	return list, nil
}

func describeCertificate(c *x509.Certificate, now time.Time) Description {
	d := Description{
		Kind: KindCertificate, State: state(c.NotBefore, c.NotAfter, now), Subject: c.Subject.String(), Issuer: c.Issuer.String(), Serial: Serial(c),
		NotBefore: c.NotBefore.UTC(), NotAfter: c.NotAfter.UTC(), Hosts: HostsOf(c), rawIssuer: string(c.RawIssuer),
	}
	if uris, err := leaseholdURIs(c); err == nil && len(uris) > 0 {
		d.URI = uris[0]
	}
	if c.IsCA {
		d.Kind = KindAuthority
		var err error
		if d.Cluster, err = ClusterOf(c); err != nil {
			d.Fault = textOf(err)
		}
		return d
	}
	n, err := NameOf(c)
	if err != nil {
		d.Fault = textOf(err)
		return d
	}
	d.Cluster, d.Role, d.Name, d.Keyspaces, d.KeyPrefixes = n.Cluster, n.Role.String(), n.Name, n.Scope.Keyspaces, n.Scope.Prefixes
	return d
}

// textOf leaves out of an Error which certificate it is about.
func textOf(err error) string {
	var e *Error
	if errors.As(err, &e) {
		return e.Text
	}
	return err.Error()
}

func describeList(l *x509.RevocationList, now time.Time) Description {
	d := Description{
		Kind: KindRevocations, State: state(l.ThisUpdate, l.NextUpdate, now), Issuer: l.Issuer.String(), Number: l.Number,
		NotBefore: l.ThisUpdate.UTC(), NotAfter: l.NextUpdate.UTC(), rawIssuer: string(l.RawIssuer),
	}
	for _, e := range l.RevokedCertificateEntries {
		d.Revoked = append(d.Revoked, fmt.Sprintf("%x", e.SerialNumber))
	}
	return d
}

func state(from, to, now time.Time) string {
	switch {
	case !to.IsZero() && now.After(to):
		return StateExpired
	case now.Before(from):
		return StateEarly
	}
	return StateValid
}

// MarkRevoked sets the state of those certificates that a list among them takes
// back. Nobody has checked the lists' signatures.
func MarkRevoked(list []Description) {
	revoked := make(map[string]bool)
	for _, d := range list {
		for _, serial := range d.Revoked {
			revoked[revokedKey([]byte(d.rawIssuer), serial)] = true
		}
	}
	for i, d := range list {
		if d.Serial != "" && revoked[revokedKey([]byte(d.rawIssuer), d.Serial)] {
			list[i].State = StateRevoked
		}
	}
}

// ParseCertificate reads the first certificate of a PEM file.
func ParseCertificate(path string) (*x509.Certificate, error) {
	data, err := readFile(path)
	if err != nil {
		return nil, err
	}
	certs, err := parseCertificates(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return certs[0], nil
}
