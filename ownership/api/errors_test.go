package api

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leasehold-dev/leasehold/ownership/controller"
	pb "github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"github.com/leasehold-dev/leasehold/raftstore"
	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// constants returns the names and values of the constants of a file that begin
// with prefix.
func constants(t *testing.T, file, prefix string) map[string]string {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, d := range f.Decls {
		gen, ok := d.(*ast.GenDecl)
		if !ok || gen.Tok != token.CONST {
			continue
		}
		for _, spec := range gen.Specs {
			v := spec.(*ast.ValueSpec)
			for i, name := range v.Names {
				if strings.HasPrefix(name.Name, prefix) && len(v.Values) > i {
					found[name.Name] = v.Values[i].(*ast.BasicLit).Value
				}
			}
		}
	}
	if len(found) == 0 {
		t.Fatalf("no constant %s… in %s", prefix, file)
	}
	return found
}

func TestNoReasonIsMissingFromTheTable(t *testing.T) {
	for _, file := range []string{"../../raftstore/state/refusal.go", "../leaseholdv1/errors.go"} {
		for name, quoted := range constants(t, file, "Reason") {
			reason, err := strconv.Unquote(quoted)
			if err != nil {
				t.Fatal(err)
			}
			code, next, known := rowOf(reason)
			if !known || code == codes.OK || next == "" {
				t.Errorf("%s (%q) is not in the error table", name, reason)
			}
		}
	}
	if _, _, known := rowOf("no such reason"); known {
		t.Error("the table knows a reason that nobody has: this test cannot fail")
	}
}

func TestRefusalKeepsAllItsFields(t *testing.T) {
	a := &API{}
	err := a.toStatus(fmt.Errorf("release: %w", &state.Refusal{
		Reason: state.ReasonStaleToken, What: "lease", Field: "token", Value: "33", Limit: "34", Token: 34, Owner: "w2", Revision: 9,
	}))
	d := pb.DetailOf(err)
	if status.Code(err) != codes.FailedPrecondition || d.GetReason() != pb.ReasonStaleToken || d.GetField() != "token" || d.GetValue() != "33" ||
		d.GetLimit() != "34" || d.GetToken() != 34 || d.GetOwner() != "w2" || d.GetRevision() != 9 {
		t.Errorf("%v, detail %v", err, d)
	}
	for _, part := range []string{"33", "34", "w2", "stop what runs"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not name %q", err, part)
		}
	}
}

func TestErrorsOfTheLayersBelowHaveTheirRow(t *testing.T) {
	a := &API{cfg: Config{ServerID: "s1", MaxRequestBytes: 10, Store: leaderless{}}}
	for _, c := range []struct {
		err    error
		code   codes.Code
		reason string
	}{
		{&raftstore.NotLeaderError{LeaderID: "s2"}, codes.Unavailable, pb.ReasonNoLeader},
		{controller.ErrNotLeading, codes.Unavailable, pb.ReasonNoLeader},
		{fmt.Errorf("x: %w", raftstore.ErrUnknownOutcome), codes.Unknown, pb.ReasonUnknownOutcome},
		{raftstore.ErrStopped, codes.Unavailable, pb.ReasonShuttingDown},
		{&raftstore.StorageError{Op: "write log"}, codes.Unavailable, pb.ReasonStoreFailed},
		{&raftstore.TooLongError{Command: "grant", Size: 9, Limit: 8}, codes.ResourceExhausted, pb.ReasonTooLarge},
		{context.DeadlineExceeded, codes.DeadlineExceeded, pb.ReasonDeadline},
		{context.Canceled, codes.Canceled, pb.ReasonCancelled},
		{status.Error(codes.Unavailable, "connection refused"), codes.Unavailable, pb.ReasonNoLeader},
		{errors.New("boom"), codes.Internal, pb.ReasonInternal},
	} {
		err := a.toStatus(c.err)
		if status.Code(err) != c.code || pb.ReasonOf(err) != c.reason {
			t.Errorf("%v became %v, reason %q", c.err, err, pb.ReasonOf(err))
		}
	}
	if err := a.notLeader(); !strings.Contains(err.Error(), "s1 is in no cluster yet: form one") {
		t.Errorf("before a cluster was formed: %v", err)
	}
	peer := &raftstore.PeerError{Op: "promote", Peer: raftstore.Peer{ID: "s3", Store: "ab12"}, Reason: "it is 9 behind"}
	if err := a.toStatus(peer); status.Code(err) != codes.Aborted || !strings.Contains(err.Error(), "server s3 with data directory ab12: it is 9 behind") {
		t.Error(err)
	}
	if err := a.toStatus(&FormationError{Exists: true, Why: "s1 has data"}); pb.ReasonOf(err) != pb.ReasonExists || strings.Contains(err.Error(), "another name") {
		t.Error(err)
	}
	if err := a.toStatus(nil); err != nil {
		t.Error(err)
	}
}

// leaderless is a store that knows no leader; nothing else of it is used.
type leaderless struct{ Store }

func (leaderless) LeaderID() (string, bool) { return "", false }
func (leaderless) HasState() bool           { return false }
func (leaderless) ClusterID() string        { return "" }

func TestConnectionTextIsForPeople(t *testing.T) {
	for raw, want := range map[string]string{
		`connection error: desc = "transport: Error while dialing: dial tcp 127.0.0.1:1: connect: connection refused"`: "dial tcp 127.0.0.1:1: connect: connection refused",
		`connection error: desc = "error reading server preface: EOF"`:                                                 "it takes the connection and says nothing: a stopped process, or no leasehold server",
		"shutting down": "shutting down",
	} {
		if got := connectionText(status.Error(codes.Unavailable, raw)); got != want {
			t.Errorf("%s became %q", raw, got)
		}
	}
}
