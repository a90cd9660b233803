package pki

import (
	"crypto/x509"
	"errors"
	"fmt"
	"time"
)

// Reasons why a certificate is refused, as metrics and logs say them.
const (
	ReasonNone         = "none"          // there is no certificate
	ReasonBad          = "bad"           // it is not one of the product's, or not for this
	ReasonExpired      = "expired"       // it has run out
	ReasonRevoked      = "revoked"       // the authority has taken it back
	ReasonWrongCA      = "wrong_ca"      // no authority of the file has signed it
	ReasonWrongCluster = "wrong_cluster" // it is for another cluster
	ReasonWrongRole    = "wrong_role"    // its role may not connect here
)

// Error says which certificate is refused, and why.
type Error struct {
	Reason string // one of the Reason constants
	// File has the certificate, where it is our own; else the other side sent it.
	File string
	// Subject is the name in the certificate: its URI or, without one, what X.509
	// calls the subject. Serial is its number in hexadecimal digits. Both are
	// empty where there is no certificate.
	Subject string
	Serial  string
	Text    string // what is wrong, and what next
}

// Error names the certificate and what is wrong with it.
func (e *Error) Error() string {
	what := "the other side's certificate"
	if e.File != "" {
		what = e.File + ": certificate"
	}
	if e.Serial == "" {
		return what + ": " + e.Text
	}
	return fmt.Sprintf("%s of %s (serial %s): %s", what, clip(e.Subject), e.Serial, e.Text)
}

// ReasonOf is the reason in an error, of a handshake for example; ReasonBad for
// one that has none, "" for nil.
func ReasonOf(err error) string {
	var e *Error
	switch {
	case err == nil:
		return ""
	case errors.As(err, &e):
		return e.Reason
	}
	return ReasonBad
}

func refuse(cert *x509.Certificate, reason, format string, args ...any) *Error {
	e := &Error{Reason: reason, Text: fmt.Sprintf(format, args...)}
	if cert != nil {
		e.Subject, e.Serial = subjectOf(cert), Serial(cert)
	}
	return e
}

// Serial is a certificate's number as the product writes it.
func Serial(cert *x509.Certificate) string { return fmt.Sprintf("%x", cert.SerialNumber) }

// subjectOf names a certificate for people, also one that is refused.
func subjectOf(cert *x509.Certificate) string {
	if uris, err := leaseholdURIs(cert); err == nil && len(uris) > 0 {
		return fmt.Sprintf("%q", clip(uris[0]))
	}
	return fmt.Sprintf("%q", clip(cert.Subject.String()))
}

// clip shortens what others wrote.
func clip(s string) string {
	if len(s) <= 200 {
		return s
	}
	return s[:200] + "…"
}

// day writes a time of a certificate.
func day(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }
