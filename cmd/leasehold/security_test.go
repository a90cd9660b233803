package main

import (
	"context"
	"crypto/tls"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"

	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"github.com/leasehold-dev/leasehold/ownership/pki"
	"github.com/leasehold-dev/leasehold/ownership/pki/pkitest"
	"github.com/leasehold-dev/leasehold/raftstore/access"
)

// securePeer is a peer with a server's certificate, and lets say who gets in.
func securePeer(t *testing.T, f pki.Files, lets func(ctx context.Context) error) *peer {
	t.Helper()
	store, err := pki.Open(f, pkitest.Cluster, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return newPeer(t, grpc.Creds(credentials.NewTLS(store.Config(pki.UseAPI))),
		grpc.UnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, h grpc.UnaryHandler) (any, error) {
			if err := lets(ctx); err != nil {
				return nil, err
			}
			return h(ctx, req)
		}))
}

func everybody(context.Context) error { return nil }

func refusal(code codes.Code, reason, message string) error {
	return leaseholdv1.StatusError(code, &leaseholdv1.ErrorDetail{Reason: reason, Message: message})
}

// with adds the files of a certificate to a command line's environment.
func (c *cli) with(f pki.Files) *cli {
	c.env["LEASEHOLD_TLS_CA_FILE"], c.env["LEASEHOLD_TLS_CERT_FILE"], c.env["LEASEHOLD_TLS_KEY_FILE"] = f.CA, f.Cert, f.Key
	return c
}

func secretFile(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

var testToken = access.Token("abcabcabcabc", []byte(strings.Repeat("\x5a", access.SecretLen)))

// A command proves who it is with a certificate or a credential, however the
// files are named.
func TestCommandsSayWhoCalls(t *testing.T) {
	a := pkitest.New(t)
	p := securePeer(t, a.Server("s1"), func(ctx context.Context) error {
		md, _ := metadata.FromIncomingContext(ctx)
		if strings.Join(md.Get("authorization"), "") != "Bearer "+testToken {
			return refusal(codes.Unauthenticated, leaseholdv1.ReasonUnauthenticated, "no credential")
		}
		return nil
	})
	token := secretFile(t, "token", testToken+"\n")
	p.cli().want(t, exitOK, "keyspace", "ls", "--tls-ca-file", a.CA(), "--credential-file", token)
	c := p.cli()
	c.env["LEASEHOLD_TLS_CA_FILE"], c.env["LEASEHOLD_CREDENTIAL_FILE"] = a.CA(), token
	c.want(t, exitOK, "keyspace", "ls")
	p.cli().want(t, exitOK, "keyspace", "ls", "--config", secretFile(t, "c.yaml", "tls_ca_file: "+a.CA()+"\ncredential_file: "+token+"\n"))
	_, stderr := p.cli().want(t, exitDenied, "keyspace", "ls", "--tls-ca-file", a.CA())
	if !strings.Contains(stderr, "no credential") || !strings.Contains(stderr, "--credential-file") {
		t.Errorf("it does not say what to do:\n%s", stderr)
	}

	q := securePeer(t, a.Server("s1"), everybody)
	q.cli().with(a.Operator("alice")).want(t, exitOK, "keyspace", "ls")
}

// Each way not to be let in names the next step.
func TestWhyCommandsAndServersDoNotTalk(t *testing.T) {
	a, other := pkitest.New(t), pkitest.NewFor(t, "other")
	plain, secure := newPeer(t), securePeer(t, a.Server("s1"), everybody)
	denies := securePeer(t, a.Server("s1"), func(context.Context) error {
		return refusal(codes.PermissionDenied, leaseholdv1.ReasonDenied, "CreateKeyspace wants the role operator, and this is reader")
	})
	expired := a.Expired(pki.Name{Role: access.Operator, Name: "alice"})
	mixed := a.Operator("alice")
	mixed.CA = other.CA()
	for _, x := range []struct {
		name  string
		cli   *cli
		args  []string
		code  int
		wants []string
	}{
		{"no TLS to a server with it", secure.cli(), nil, exitUnreachable, []string{"TLS", "next: if it wants TLS, give --tls-ca-file"}},
		{"TLS to a server without", plain.cli().with(a.Operator("alice")), nil, exitUnreachable, []string{"speaks without TLS", "next: leave out --tls-ca-file"}},
		{"another authority", secure.cli().with(other.Operator("alice")), nil, exitUnreachable, []string{"not of the authority", "next: is --tls-ca-file"}},
		{"files of two authorities", secure.cli().with(mixed), nil, exitUsage, []string{mixed.Cert, "next: leasehold tls inspect"}},
		{"a certificate that has run out", secure.cli().with(expired), nil, exitUsage, []string{"expired on", expired.Cert}},
		{"a certificate without key", secure.cli(), []string{"--tls-ca-file", a.CA(), "--tls-cert-file", expired.Cert}, exitUsage, []string{"go together"}},
		{"a certificate without authority", secure.cli(), []string{"--tls-cert-file", expired.Cert, "--tls-key-file", expired.Key}, exitUsage, []string{"--tls-ca-file is missing"}},
		{"a credential without TLS", plain.cli(), []string{"--credential-file", secretFile(t, "token", testToken)}, exitUsage, []string{"over TLS only"}},
		{"a credential that is none", secure.cli(), []string{"--tls-ca-file", a.CA(), "--credential-file", secretFile(t, "token", "hunter2hunter2")}, exitUsage, []string{"holds no credential"}},
		{"a credential in place of its file", secure.cli(), []string{"--tls-ca-file", a.CA(), "--credential-file", testToken}, exitUsage, []string{"revoke it"}},
		{"a role that may not", denies.cli().with(a.Reader("bob")), nil, exitDenied, []string{"wants the role operator", "next: use a certificate or credential with that role"}},
	} {
		t.Run(x.name, func(t *testing.T) {
			stdout, stderr := x.cli.want(t, x.code, append([]string{"keyspace", "ls"}, x.args...)...)
			for _, want := range x.wants {
				if !strings.Contains(stderr, want) {
					t.Errorf("stderr does not say %q:\n%s", want, stderr)
				}
			}
			for _, secret := range []string{testToken[17:], "hunter2"} {
				if strings.Contains(stdout+stderr, secret) {
					t.Errorf("it tells a secret:\n%s%s", stdout, stderr)
				}
			}
		})
	}
}

// The server is known by its role, not by its address: a worker with a certificate
// of the same authority cannot play it.
func TestCommandsWantAServer(t *testing.T) {
	a := pkitest.New(t)
	w := a.Worker("w1")
	pair, err := tls.LoadX509KeyPair(w.Cert, w.Key)
	if err != nil {
		t.Fatal(err)
	}
	impostor := newPeer(t, grpc.Creds(credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{pair}})))
	_, stderr := impostor.cli().with(a.Operator("alice")).want(t, exitUnreachable, "keyspace", "ls")
	if !strings.Contains(stderr, "not that of a server of this cluster") || !strings.Contains(stderr, "role is worker") || impostor.last() != nil {
		t.Errorf("stderr:\n%s", stderr)
	}
	p := securePeer(t, a.Server("s1"), everybody)
	stranger := a.Files(pki.Name{Cluster: "other", Role: access.Operator, Name: "alice"})
	_, stderr = p.cli().with(stranger).want(t, exitUnreachable, "keyspace", "ls")
	if !strings.Contains(stderr, "not that of a server of this cluster") || !strings.Contains(stderr, `cluster "leasehold"`) || p.last() != nil {
		t.Errorf("stderr:\n%s", stderr)
	}
}

// What everybody can read is no secret any more, and that is said.
func TestWarnsOfSecretsThatOthersCanRead(t *testing.T) {
	a := pkitest.New(t)
	p := securePeer(t, a.Server("s1"), everybody)
	token := secretFile(t, "token", testToken)
	if err := os.Chmod(token, 0o644); err != nil {
		t.Fatal(err)
	}
	_, stderr := p.cli().want(t, exitOK, "keyspace", "ls", "--tls-ca-file", a.CA(), "--credential-file", token)
	if !strings.Contains(stderr, "warning: "+token) || strings.Contains(stderr, testToken[17:]) {
		t.Errorf("stderr: %q", stderr)
	}
}

// A worker's certificate opens ids that begin with its name, so the id that a command
// makes up does.
func TestMadeUpWorkerIDSuitsTheCertificate(t *testing.T) {
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	a := pkitest.New(t)
	for _, x := range []struct{ name, file, want string }{
		{"no certificate", "", host + "-jobs"},
		{"another name", a.Worker("billing").Cert, "billing-" + host + "-jobs"},
		{"the host's name", a.Worker(host).Cert, host + "-jobs"},
		{"a reader's", a.Reader("bob").Cert, host + "-jobs"},
	} {
		t.Run(x.name, func(t *testing.T) {
			var e env
			e.flags = &globals{}
			e.flags.security.TLS.Cert = x.file
			id, err := hostID(e, "-jobs")
			if err != nil || id != x.want {
				t.Errorf("got %q, %v; want %q", id, err, x.want)
			}
		})
	}
}
