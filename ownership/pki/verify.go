package pki

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"strings"
	"time"

	"github.com/leasehold-dev/leasehold/raftstore/access"
)

// trust is who is believed: one reading of the files, never changed.
type trust struct {
	pool        *x509.CertPool
	authorities []*x509.Certificate
	lists       []*x509.RevocationList
	revoked     map[string]bool // by revokedKey
}

// revokedKey is what a list knows a certificate by: serial numbers are unique to
// whoever signs.
func revokedKey(rawIssuer []byte, serial string) string { return serial + " " + string(rawIssuer) }

func serialOfKey(key string) string {
	serial, _, _ := strings.Cut(key, " ")
	return serial
}

func (t *trust) isRevoked(c *x509.Certificate) bool {
	return t.revoked[revokedKey(c.RawIssuer, Serial(c))]
}

// maxChain bounds what the other side may send: a certificate and the authorities
// between it and ours.
const maxChain = 5

// demand is what one end of a connection wants of the other.
type demand struct {
	optional bool             // the other side need not have a certificate
	server   bool             // role server alone
	usage    x509.ExtKeyUsage // what its certificate must be good for
	cluster  string           // "" : any
}

// verify judges the other side of a connection. This is the only place that does,
// for both directions and every listener.
func (t *trust) verify(cs tls.ConnectionState, d demand, now time.Time) error {
	certs := cs.PeerCertificates
	switch {
	case len(certs) == 0 && d.optional:
		return nil
	case len(certs) == 0:
		return refuse(nil, ReasonNone, "there is none")
	case len(certs) > maxChain:
		return refuse(certs[0], ReasonBad, "it comes with %d more: at most %d", len(certs)-1, maxChain-1)
	}
	leaf := certs[0]
	chains, err := t.chains(certs, d.usage, now)
	if err != nil {
		return classify(leaf, err, d, now)
	}
	if err := t.refuseRevoked(chains); err != nil {
		return err
	}
	_, err = admit(leaf, d)
	return err
}

// chains are the ways from a certificate to an authority.
func (t *trust) chains(certs []*x509.Certificate, usage x509.ExtKeyUsage, now time.Time) ([][]*x509.Certificate, error) {
	between := x509.NewCertPool()
	for _, c := range certs[1:] {
		between.AddCert(c)
	}
	return certs[0].Verify(x509.VerifyOptions{Roots: t.pool, Intermediates: between, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{usage}})
}

// refuseRevoked wants one chain of which no certificate is revoked.
func (t *trust) refuseRevoked(chains [][]*x509.Certificate) error {
	var refused error
	for _, chain := range chains {
		var taken *x509.Certificate
		for _, c := range chain {
			if t.isRevoked(c) {
				taken = c
				break
			}
		}
		if taken == nil {
			return nil
		}
		refused = refuse(taken, ReasonRevoked, "its authority has revoked it; issue another")
	}
	return refused
}

// admit reads the name of a certificate whose signature is good, and compares it
// with what is wanted.
func admit(leaf *x509.Certificate, d demand) (Name, error) {
	n, err := NameOf(leaf)
	switch {
	case err != nil:
		return Name{}, err
	case d.cluster != "" && n.Cluster != d.cluster:
		return Name{}, refuse(leaf, ReasonWrongCluster, "it is for the cluster %q, and this is %q", n.Cluster, d.cluster)
	case d.server && n.Role != access.Server:
		return Name{}, refuse(leaf, ReasonWrongRole, "its role is %s: only a server belongs here", n.Role)
	}
	return n, nil
}

// classify says what is wrong with a certificate of which package x509 thinks
// nothing good.
func classify(leaf *x509.Certificate, err error, d demand, now time.Time) error {
	var invalid x509.CertificateInvalidError
	var unknown x509.UnknownAuthorityError
	switch {
	case errors.As(err, &unknown):
		return refuse(leaf, ReasonWrongCA, "no authority of the CA file has signed it")
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		if late := checkTime(invalid.Cert, now); late != nil {
			return late
		}
	case errors.As(err, &invalid) && invalid.Reason == x509.IncompatibleUsage:
		if _, err := admit(leaf, d); err != nil { // says it better
			return err
		}
		return refuse(leaf, ReasonBad, "its extended key usage does not allow this side of a connection")
	}
	return refuse(leaf, ReasonBad, "%v", err)
}
