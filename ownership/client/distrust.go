package client

import (
	"errors"
	"strings"

	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Distrust is why a client and a server that reach each other do not talk. All
// but those that are guesses stay until somebody has changed a setting or a file.
type Distrust uint8

// The kinds of distrust. gRPC passes the errors of TLS on as text alone, so they
// are told apart by their words.
const (
	Trusted Distrust = iota // none
	// WantsTLS: the server has ended a connection that began without TLS. A
	// guess: one that stops, or is full, does so too.
	WantsTLS
	// SpeaksPlain: the server answers without TLS.
	SpeaksPlain
	// UnknownAuthority: the server's certificate is not of an authority we have.
	UnknownAuthority
	// ServerExpired: the server's certificate is not valid now.
	ServerExpired
	// NotAServer: its certificate is good and not that of a server of our cluster.
	NotAServer
	// CertificateRefused: the server does not take our certificate.
	CertificateRefused
	// CertificateDoubted: the server has ended the connection after it had the
	// certificate. A guess.
	CertificateDoubted
	// OwnCertificate: our own files cannot be used.
	OwnCertificate
)

var distrustText = [...]string{
	Trusted:            "trusted",
	WantsTLS:           "it ends a connection without TLS: it may want TLS, be no leasehold server, or stop just now",
	SpeaksPlain:        "it speaks without TLS, and this client only with it",
	UnknownAuthority:   "its certificate is not of the authority that this client trusts",
	ServerExpired:      "its certificate is not valid now",
	NotAServer:         "its certificate is not that of a server of this cluster",
	CertificateRefused: "it refuses the certificate of this client",
	CertificateDoubted: "it ends the connection after the handshake: it may refuse the certificate of this client, or stop just now",
	OwnCertificate:     "the certificate of this client cannot be used",
}

// String says what it is, without what to do.
func (d Distrust) String() string {
	if int(d) < len(distrustText) {
		return distrustText[d]
	}
	return "unknown distrust"
}

// Certain is false for a guess.
func (d Distrust) Certain() bool {
	return d != Trusted && d != WantsTLS && d != CertificateDoubted
}

// distrust finds out what an error of a connection means.
func (c *Client) distrust(err error) Distrust {
	if err == nil || Detail(err) != nil {
		return Trusted
	}
	msg := status.Convert(err).Message()
	has := func(words ...string) bool {
		for _, w := range words {
			if strings.Contains(msg, w) {
				return true
			}
		}
		return false
	}
	cut := has("server preface: EOF", "connection reset", "broken pipe", "http2: frame too large", "unexpected EOF")
	switch {
	case c.cfg.TLS == nil && cut && has("preface"):
		return WantsTLS
	case c.cfg.TLS == nil:
		return Trusted
	case has("first record does not look like a TLS handshake"):
		return SpeaksPlain
	case has("remote error: tls: ") && has(certificateAlerts...):
		return CertificateRefused
	case has("the other side's certificate"): // as package pki says it
		switch {
		case has("no authority of the CA file has signed it"):
			return UnknownAuthority
		case has("it expired on", "it is valid from"):
			return ServerExpired
		}
		return NotAServer
	case has("authentication handshake failed") && has(": certificate of"):
		return OwnCertificate
	case !has("authentication handshake failed"):
		if cut && has("preface", "write: ") { // it may have judged before the client had said all
			return CertificateDoubted
		}
		return Trusted
	case has("certificate has expired or is not yet valid"):
		return ServerExpired
	case has("x509: certificate signed by unknown authority", "x509: cannot validate", "x509: certificate is not valid", "x509: certificate is valid for"):
		return UnknownAuthority
	}
	return Trusted
}

// certificateAlerts are what servers say of a certificate. Other alerts tell of
// the handshake, or of the server.
var certificateAlerts = []string{
	"bad certificate", "expired certificate", "revoked certificate", "unknown certificate", "unknown certificate authority",
	"certificate required", "unsupported certificate", "access denied",
}

// isRefusal reports whether a server has said that it does not let the caller in,
// or the caller could not say who it is.
func isRefusal(err error) bool {
	switch Detail(err).GetReason() {
	case leaseholdv1.ReasonUnauthenticated, leaseholdv1.ReasonDenied:
		return true
	}
	code := status.Code(err)
	return code == codes.Unauthenticated || code == codes.PermissionDenied
}

// Refusal is what an error of a call says about the caller: that it is not known,
// or may not do this. A server that refuses the caller's certificate says so
// before there can be an answer; that counts too. nil: nothing of the kind.
func (c *Client) Refusal(err error) *leaseholdv1.ErrorDetail {
	if isRefusal(err) {
		if d := Detail(err); d != nil {
			return d
		}
		reason := leaseholdv1.ReasonUnauthenticated
		if status.Code(err) == codes.PermissionDenied {
			reason = leaseholdv1.ReasonDenied
		}
		return &leaseholdv1.ErrorDetail{Reason: reason, Message: plain(err)}
	}
	for _, s := range c.failures(err) {
		if s.Distrust == CertificateRefused || s.Distrust == OwnCertificate {
			return &leaseholdv1.ErrorDetail{Reason: leaseholdv1.ReasonUnauthenticated, Message: s.plain()}
		}
	}
	return nil
}

// Explain gives the error of a connection made by Open its meaning, as those of
// the Client's own calls have it.
func (c *Client) Explain(err error) error {
	if d := c.distrust(err); d != Trusted {
		return &explained{ServerError{Err: err, Distrust: d}}
	}
	return err
}

// explained is the error of a connection with its meaning.
type explained struct{ ServerError }

func (e *explained) Error() string { return e.plain() }
func (e *explained) Unwrap() error { return e.Err }

// failures of the servers that an error is about.
func (c *Client) failures(err error) []ServerError {
	var u *UnreachableError
	if errors.As(err, &u) {
		return u.Servers
	}
	return []ServerError{{Err: err, Distrust: c.distrust(err)}}
}
