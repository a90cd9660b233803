package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"sync"

	"github.com/spf13/pflag"

	"github.com/leasehold-dev/leasehold/cmd/leasehold/internal/identity"
	"github.com/leasehold-dev/leasehold/ownership/client"
	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"github.com/leasehold-dev/leasehold/ownership/pki"
)

// securityFlags say which servers a command believes, and who it is to them. A
// server has flags of the same names for its own certificate.
type securityFlags struct {
	identity.Files

	once       sync.Once // the files are opened by the first who needs them
	tls        *tls.Config
	credential client.Credential
	err        error
}

func (s *securityFlags) define(f *pflag.FlagSet) {
	f.StringVar(&s.TLS.CA, "tls-ca-file", "", "PEM `file` with the authority of the servers' certificates: talk over TLS (env LEASEHOLD_TLS_CA_FILE)")
	f.StringVar(&s.TLS.Cert, "tls-cert-file", "", "PEM `file` with the certificate that says who calls (env LEASEHOLD_TLS_CERT_FILE)")
	f.StringVar(&s.TLS.Key, "tls-key-file", "", "PEM `file` with its key (env LEASEHOLD_TLS_KEY_FILE)")
	f.StringVar(&s.Credential, "credential-file", "", "`file` with the credential that says who calls, in place of a certificate (env LEASEHOLD_CREDENTIAL_FILE)")
	layered(f, "tls-ca-file", "tls-cert-file", "tls-key-file", "credential-file")
}

// security is what the flags mean; nil and nil without any.
func (e env) security() (*tls.Config, client.Credential, error) {
	s := &e.flags.security
	s.once.Do(func() {
		var cert *pki.Error
		s.tls, s.credential, s.err = s.Open()
		switch {
		case errors.As(s.err, &cert):
			s.err = &usageError{&hintError{s.err, "leasehold tls inspect FILE shows what is in a certificate"}}
		case s.err != nil:
			s.err = &usageError{s.err}
		}
	})
	return s.tls, s.credential, s.err
}

// warnOfSecrets tells of a credential that everybody on this machine can read.
// Package pki does so for keys.
func (e env) warnOfSecrets() {
	if err := checkPrivate(e.flags.security.Credential); err != nil {
		fmt.Fprintf(e.stderr, "leasehold: warning: %s\n", withoutSecrets(err.Error()))
	}
}

// distrustStep is what to do when a command and the servers do not trust each
// other; empty for other errors.
func distrustStep(err error) string {
	var u *client.UnreachableError
	if !errors.As(err, &u) {
		return ""
	}
	switch u.Distrust() {
	case client.WantsTLS:
		return "if it wants TLS, give --tls-ca-file, and --tls-cert-file with --tls-key-file or --credential-file"
	case client.SpeaksPlain:
		return "leave out --tls-ca-file (LEASEHOLD_TLS_CA_FILE), or give the servers certificates: leasehold server --help"
	case client.UnknownAuthority:
		return "is --tls-ca-file (LEASEHOLD_TLS_CA_FILE) that of this cluster? leasehold tls inspect FILE shows whose it is"
	case client.ServerExpired:
		return "renew the server's certificate: leasehold tls issue --renew NAME; it is used without a restart"
	case client.NotAServer:
		return "is --server an address of this cluster? leasehold tls inspect FILE shows for which cluster a certificate is"
	case client.CertificateRefused, client.CertificateDoubted, client.OwnCertificate:
		return "leasehold tls inspect FILE shows what is wrong with --tls-cert-file (LEASEHOLD_TLS_CERT_FILE); the server's log has the reason"
	}
	return ""
}

// accessStep is what to do about a refusal by who one is.
func accessStep(reason string) string {
	switch reason {
	case leaseholdv1.ReasonUnauthenticated:
		return "say who you are with --tls-cert-file and --tls-key-file, or --credential-file: leasehold tls issue --help, leasehold credential --help"
	case leaseholdv1.ReasonDenied:
		return "use a certificate or credential with that role and those bounds: leasehold tls inspect FILE, leasehold credential ls"
	}
	return ""
}
