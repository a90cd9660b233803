package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/client"
	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// reasons reads all reasons of the API out of its source, so that a new one
// cannot be forgotten here.
func reasons(t *testing.T) []string {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), "../../ownership/leaseholdv1/errors.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	ast.Inspect(f, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if ok && len(spec.Values) == 1 && strings.HasPrefix(spec.Names[0].Name, "Reason") {
			if lit, ok := spec.Values[0].(*ast.BasicLit); ok {
				s, err := strconv.Unquote(lit.Value)
				if err != nil {
					t.Fatal(err)
				}
				out = append(out, s)
			}
		}
		return true
	})
	if len(out) < 20 {
		t.Fatalf("found only %v", out)
	}
	return out
}

func TestEveryReasonHasAnExitCode(t *testing.T) {
	all := reasons(t)
	for _, r := range all {
		if _, ok := exitByReason[r]; !ok {
			t.Errorf("reason %q is missing in exitByReason", r)
		}
	}
	if len(exitByReason) != len(all) {
		t.Errorf("%d entries for %d reasons", len(exitByReason), len(all))
	}
}

// A certificate that was taken back is not let in, as a credential is not: asking
// again does not help. Other distrust may be a server's own.
func TestRefusedCertificateIsNotLetIn(t *testing.T) {
	down := client.ServerError{Addr: "a:1", Err: status.Error(codes.Unavailable, "connection refused")}
	for _, c := range []struct {
		met  client.Distrust
		code int
	}{
		{client.CertificateRefused, exitDenied},
		{client.CertificateDoubted, exitUnreachable},
		{client.ServerExpired, exitUnreachable},
		{client.Trusted, exitUnreachable},
	} {
		second := client.ServerError{Addr: "b:1", Err: status.Error(codes.Unavailable, "closed"), Distrust: c.met}
		err := fmt.Errorf("ask: %w", &client.UnreachableError{Servers: []client.ServerError{down, second}})
		if code := exitCode(err); code != c.code {
			t.Errorf("%v: exit code %d, want %d", c.met, code, c.code)
		}
	}
}

// The exit codes of DESIGN §9, seen from outside.
func TestExitCodes(t *testing.T) {
	p := newPeer(t)
	for _, c := range []struct {
		reason string
		code   codes.Code
		want   int
	}{
		{leaseholdv1.ReasonInvalid, codes.InvalidArgument, 2},
		{leaseholdv1.ReasonTooLarge, codes.ResourceExhausted, 2},
		{leaseholdv1.ReasonNotFound, codes.NotFound, 4},
		{leaseholdv1.ReasonExists, codes.AlreadyExists, 5},
		{leaseholdv1.ReasonConflict, codes.FailedPrecondition, 5},
		{leaseholdv1.ReasonStrict, codes.FailedPrecondition, 5},
		{leaseholdv1.ReasonNoLeader, codes.Unavailable, 3},
		{leaseholdv1.ReasonNotLeader, codes.Unavailable, 3},
		{leaseholdv1.ReasonShuttingDown, codes.Unavailable, 3},
		{leaseholdv1.ReasonStoreFailed, codes.Unavailable, 3},
		{leaseholdv1.ReasonUnknownOutcome, codes.Unknown, 1},
		{leaseholdv1.ReasonInternal, codes.Internal, 1},
	} {
		p.refuseWith(c.code, &leaseholdv1.ErrorDetail{Reason: c.reason, Message: "because of " + c.reason})
		code, errOut := 0, ""
		// What is tried again until time is up ends otherwise if that is in the
		// middle of a try. It is not so every time.
		for range 5 {
			cmd := p.cli()
			code = cmd.run(t, "keyspace", "create", "orders", "--timeout", "1500ms")
			if errOut = cmd.stderr.String(); code == c.want && strings.Contains(errOut, "because of "+c.reason) {
				break
			}
		}
		if code != c.want || !strings.Contains(errOut, "because of "+c.reason) || !strings.Contains(errOut, `create keyspace "orders"`) || strings.Contains(errOut, "rpc error") {
			t.Errorf("%s: exit %d, want %d: %s", c.reason, code, c.want, errOut)
		}
	}
	p.refuse = nil
	for _, line := range []string{
		"frob", "keyspace frob", "keyspace create", "keyspace create a b", "keyspace create a --frob", "keyspace create a --ttl 600",
		"keyspace create a --partitions -1", "cluster init --expect 5000000000", "backup verify", "audit verify", "server --bootstrap-expect x", "keyspace create a --partitions many", "keyspace create a --takeover maybe", "keyspace set a",
		"partitions show orders", "partitions show orders x", "partitions show orders -- -1", "partitions show orders 99999999999", "partitions move orders 1",
		"locate orders", "locate orders --hex xyz", "events --partition 3", "status -o yaml", "status --timeout 5", "status --server a:0",
		"keyspace rm orders", "workers evict w2", "credential revoke ci", "credential create ci", "credential create ci --role server",
		"credential create ci --role boss", "credential create ci --role reader --ttl 0s", "credential create ci --role reader --ttl 5", "completion tcsh", "server", "dev --workers -1", "dev --workers 1000", "status --config /does/not/exist",
	} {
		_, errOut := p.cli().want(t, exitUsage, strings.Fields(line)...)
		if !strings.Contains(errOut, "\n  next: ") || strings.Contains(errOut, "strconv") {
			t.Errorf("%s: no next step in %q, or Go's parser", line, errOut)
		}
	}
}

func TestUnreachable(t *testing.T) {
	const nobody = "127.0.0.1:1" // a port that is given to nobody meanwhile
	start := time.Now()
	_, errOut := (&cli{}).want(t, exitUnreachable, "status", "--timeout", "3s", "--server", nobody)
	for _, want := range []string{nobody, "connection refused", "leasehold dev", "LEASEHOLD_SERVER"} {
		if !strings.Contains(errOut, want) {
			t.Errorf("%q does not say %q", errOut, want)
		}
	}
	if d := time.Since(start); d > 10*time.Second {
		t.Errorf("took %v", d)
	}
}

func TestMessageKeepsWhatWasTried(t *testing.T) {
	err := leaseholdv1.StatusError(codes.NotFound, &leaseholdv1.ErrorDetail{Reason: "not_found", Message: "no keyspace of that name"})
	wrapped := errors.Join(err)
	if got := message(wrapped); got != "no keyspace of that name" {
		t.Errorf("got %q", got)
	}
}
