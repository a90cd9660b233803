package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"github.com/leasehold-dev/leasehold/raftstore/access"
	"google.golang.org/grpc/codes"
)

// ciToken is what the peer answers.
var ciToken = access.Token("abc123abc123", make([]byte, access.SecretLen))

func TestCredentialCreatePrintsTheTokenAndNothingElse(t *testing.T) {
	p := newPeer(t)
	out, errOut := p.cli().want(t, exitOK, "credential", "create", "ci", "--role", "worker", "--keyspace", "orders", "--keyspace", "pay-*", "--key-prefix", "/app/", "--ttl", "720h")
	if out != ciToken+"\n" {
		t.Errorf("standard output has %q", out)
	}
	if !strings.Contains(errOut, "only copy") || strings.Contains(errOut, ciToken) || !strings.Contains(errOut, "keyspaces orders,pay-*, keys /app/*") {
		t.Errorf("said %q", errOut)
	}
	r, ok := p.last().(*leaseholdv1.CreateCredentialRequest)
	if !ok || r.GetRole() != leaseholdv1.Role_ROLE_WORKER || r.GetTtlMs() != 720*3_600_000 ||
		!slices.Equal(r.GetKeyspaces(), []string{"orders", "pay-*"}) || !slices.Equal(r.GetKeyPrefixes(), []string{"/app/"}) {
		t.Errorf("asked for %v", p.last())
	}
}

func TestCredentialCreateIntoAFile(t *testing.T) {
	p := newPeer(t)
	file := filepath.Join(t.TempDir(), "ci.token")
	create := []string{"credential", "create", "ci", "--role", "worker", "--out", file}
	for _, format := range []string{"table", "json"} {
		out, errOut := p.cli().want(t, exitOK, append(create, "-o", format)...)
		if strings.Contains(out+errOut, ciToken) || !strings.Contains(out, "abc123abc123") {
			t.Errorf("-o %s said %q", format, out+errOut)
		}
		info, err := os.Stat(file)
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Fatalf("mode %v, %v", info.Mode(), err)
		}
		if got, err := os.ReadFile(file); err != nil || string(got) != ciToken+"\n" {
			t.Errorf("the file has %q, %v", got, err)
		}
		// A file that is there may have the only copy of another token.
		asked := len(p.asked)
		if _, errOut := p.cli().want(t, exitRefused, create...); !strings.Contains(errOut, file) {
			t.Errorf("said %q", errOut)
		}
		if len(p.asked) != asked {
			t.Error("a credential was made whose token had no place to go")
		}
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
	}
	p.refuse = leaseholdv1.StatusError(codes.AlreadyExists, &leaseholdv1.ErrorDetail{Reason: leaseholdv1.ReasonExists, Message: "the name is taken"})
	_, errOut := p.cli().want(t, exitRefused, create...)
	if _, err := os.Stat(file); !os.IsNotExist(err) || !strings.Contains(errOut, "the name is taken") {
		t.Errorf("after a refusal the file is there (%v): %q", err, errOut)
	}
}

// Somebody pastes the secret where the name belongs.
func TestTokenIsNoNameOfACredential(t *testing.T) {
	p := newPeer(t)
	_, errOut := p.cli().want(t, exitUsage, "credential", "revoke", ciToken, "--yes")
	if strings.Contains(errOut, ciToken) || p.last() != nil {
		t.Errorf("said %q, asked %v", errOut, p.last())
	}
}
