package api

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	pb "github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"github.com/leasehold-dev/leasehold/raftstore/access"
	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// boss is an operator with a certificate, of everything or of what is given.
func boss(ctx context.Context, prefixes ...string) context.Context {
	scope := access.Everywhere()
	if len(prefixes) > 0 {
		scope.Prefixes = prefixes
	}
	return access.NewContext(ctx, access.Identity{Source: access.Certificate, Name: "root", Role: access.Operator, Scope: scope, Serial: "1f"})
}

// logbook keeps what a server logs.
type logbook struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logbook) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logbook) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// The secret is in the answer and nowhere else.
func TestCredentialIsKeptAsAHash(t *testing.T) {
	book := &logbook{}
	c := startCoordination(t, 1, func(cfg *Config) {
		cfg.Logger = slog.New(slog.NewTextHandler(book, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	s := c.leader(t)
	a := &credentials{API: s.api}
	made, err := a.CreateCredential(boss(t.Context()), &pb.CreateCredentialRequest{
		Name: "ci", Role: pb.Role_ROLE_WORKER, Keyspaces: []string{"pay-*"}, TtlMs: 3_600_000,
	})
	if err != nil {
		t.Fatal(err)
	}
	id, secret, err := access.ParseToken(made.GetToken())
	if err != nil {
		t.Fatal(err)
	}
	var kept access.Credential
	var snapshot bytes.Buffer
	s.store.View(func(st *state.State) {
		kept, _ = st.Credential(id)
		if err := st.Snapshot().Write(&snapshot); err != nil {
			t.Error(err)
		}
	})
	if !kept.Matches(secret) || kept.Name != "ci" || kept.Role != access.Worker || kept.Scope.Keyspaces[0] != "pay-*" || kept.Scope.Prefixes != nil {
		t.Errorf("kept %+v", kept)
	}
	if kept.Expires.Sub(kept.Created) != time.Hour || kept.By != "operator/root (certificate 1f)" {
		t.Errorf("made by %q, from %s to %s", kept.By, kept.Created, kept.Expires)
	}
	if m := made.GetCredential(); m.GetId() != id || m.GetName() != "ci" || m.GetExpires().AsTime() != kept.Expires || m.GetCreatedBy() != kept.By {
		t.Errorf("told %v", m)
	}
	list, err := a.ListCredentials(boss(t.Context()), &pb.ListCredentialsRequest{})
	if err != nil || len(list.GetItems()) != 1 || list.GetItems()[0].GetId() != id {
		t.Fatalf("listed %v, %v", list, err)
	}
	if !strings.Contains(book.String(), "credential created") {
		t.Fatal("the log says nothing of it")
	}
	for place, text := range map[string]string{"log": book.String(), "state": snapshot.String(), "list": fmt.Sprint(list)} {
		for _, form := range []string{string(secret), made.GetToken(), base64.RawURLEncoding.EncodeToString(secret), hex.EncodeToString(secret)} {
			if strings.Contains(text, form) {
				t.Errorf("the secret is in the %s", place)
			}
		}
	}
	out, n := newRedactor(nil).clean([]byte("argv: run " + made.GetToken() + " x"))
	if n != 1 || string(out) != "argv: run "+redacted+" x" {
		t.Errorf("a debug archive would have %q", out)
	}
	again, err := a.CreateCredential(boss(t.Context()), &pb.CreateCredentialRequest{Name: "ci", Role: pb.Role_ROLE_WORKER})
	if state.ReasonOf(err) != state.ReasonExists || again != nil {
		t.Errorf("a second one of the name: %v, %v", again, err)
	}
}

func TestNobodyGivesMoreThanTheyHave(t *testing.T) {
	c := startCoordination(t, 1)
	a := &credentials{API: c.leader(t).api}
	soon := time.Now().Add(time.Hour)
	bearer := func(expires time.Time) context.Context {
		return access.NewContext(t.Context(), access.Identity{
			Source: access.Bearer, Credential: "abc123abc123", Name: "op", Role: access.Operator, Scope: access.Everywhere(), Expires: expires,
		})
	}
	role := func(r access.Role) context.Context {
		return access.NewContext(t.Context(), access.Identity{Source: access.Certificate, Name: "x", Role: r, Scope: access.Everywhere()})
	}
	for i, tc := range []struct {
		who context.Context
		r   *pb.CreateCredentialRequest
		may bool
	}{
		{t.Context(), &pb.CreateCredentialRequest{}, false},
		{role(access.Reader), &pb.CreateCredentialRequest{}, false},
		{role(access.Worker), &pb.CreateCredentialRequest{}, false},
		{boss(t.Context()), &pb.CreateCredentialRequest{}, true},
		{access.NewContext(t.Context(), access.Anybody()), &pb.CreateCredentialRequest{}, true},
		{boss(t.Context(), "/app/"), &pb.CreateCredentialRequest{}, false}, // everywhere
		{boss(t.Context(), "/app/"), &pb.CreateCredentialRequest{KeyPrefixes: []string{"/"}}, false},
		{boss(t.Context(), "/app/"), &pb.CreateCredentialRequest{KeyPrefixes: []string{"/app/x"}}, true},
		{boss(t.Context(), "/app/"), &pb.CreateCredentialRequest{Keyspaces: []string{"orders"}}, true},
		{bearer(soon), &pb.CreateCredentialRequest{}, false}, // for ever
		{bearer(soon), &pb.CreateCredentialRequest{TtlMs: 2 * 3_600_000}, false},
		{bearer(soon), &pb.CreateCredentialRequest{TtlMs: 60_000}, true},
		{bearer(time.Time{}), &pb.CreateCredentialRequest{}, true},
	} {
		tc.r.Name, tc.r.Role = fmt.Sprintf("c%d", i), pb.Role_ROLE_OPERATOR
		resp, err := a.CreateCredential(tc.who, tc.r)
		if tc.may && err != nil || !tc.may && pb.ReasonOf(err) != pb.ReasonDenied || (resp == nil) == tc.may {
			t.Errorf("%s asks for %v: %v", access.FromContext(tc.who), tc.r, err)
		}
	}
	// What they could not have made is not there for them either.
	list, err := a.ListCredentials(boss(t.Context(), "/app/"), &pb.ListCredentialsRequest{})
	if err != nil || len(list.GetItems()) != 2 {
		t.Errorf("listed %v, %v", list, err)
	}
	if _, err := a.RevokeCredential(boss(t.Context(), "/app/"), &pb.RevokeCredentialRequest{Credential: "c3"}); pb.ReasonOf(err) != pb.ReasonNotFound {
		t.Errorf("revoking one that reaches further: %v", err)
	}
	if _, err := a.RevokeCredential(boss(t.Context(), "/app/"), &pb.RevokeCredentialRequest{Credential: "c7"}); err != nil {
		t.Errorf("revoking one's own: %v", err)
	}
}

func TestRevokedCredentialBarsWhatItOpened(t *testing.T) {
	c := startCoordination(t, 1)
	s := c.leader(t)
	createKeyspace(t, s.dial(t), "orders", 4)
	a := &credentials{API: s.api}
	made, err := a.CreateCredential(boss(t.Context()), &pb.CreateCredentialRequest{Name: "ci", Role: pb.Role_ROLE_WORKER})
	if err != nil {
		t.Fatal(err)
	}
	id := made.GetCredential().GetId()
	owner := access.CredentialOwner(id)
	c.propose(t, func(*server) state.Command {
		return &state.OpenSession{Session: 5, Worker: "w1", Keyspaces: []string{"orders"}, Owner: owner}
	})
	c.propose(t, func(*server) state.Command { return &state.GrantLease{Session: 6, TTL: 60, Owner: owner} })
	workers, err := pb.NewWorkerServiceClient(s.dial(t)).ListWorkers(boss(t.Context()), &pb.ListWorkersRequest{})
	if err != nil || len(workers.GetItems()) != 1 || workers.GetItems()[0].GetOwner() != owner {
		t.Errorf("workers %v, %v", workers, err)
	}
	if _, err := a.RevokeCredential(boss(t.Context()), &pb.RevokeCredentialRequest{Credential: made.GetToken()}); err == nil || strings.Contains(err.Error(), made.GetToken()) {
		t.Errorf("revoking by the token itself: %v", err)
	}
	gone, err := a.RevokeCredential(boss(t.Context()), &pb.RevokeCredentialRequest{Credential: "ci"})
	if err != nil || gone.GetSessions() != 2 || gone.GetCredential().GetId() != id {
		t.Fatalf("revoked %v, %v", gone, err)
	}
	s.store.View(func(st *state.State) {
		for x := range st.Sessions() {
			if x.State != state.SessionEvicted {
				t.Errorf("session %d is %s", x.ID, x.State)
			}
		}
	})
	for _, ref := range []string{"ci", id} {
		if _, err := a.RevokeCredential(boss(t.Context()), &pb.RevokeCredentialRequest{Credential: ref}); pb.ReasonOf(err) != pb.ReasonNotFound {
			t.Errorf("revoking %s again: %v", ref, err)
		}
	}
	list, err := pb.NewEventServiceClient(s.dial(t)).ListEvents(boss(t.Context()), &pb.ListEventsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	told := map[string]*pb.Event{}
	for _, ev := range list.GetItems() {
		told[ev.GetKind()] = ev
	}
	if ev := told["credential_create"]; ev.GetWorker() != "ci" || ev.GetFrom() != id {
		t.Errorf("told %v", ev)
	}
	if ev := told["credential_revoke"]; ev.GetWorker() != "ci" || ev.GetFrom() != id {
		t.Errorf("told %v", ev)
	}
	if ev := told["session_bar"]; ev.GetWorker() != "w1" || ev.GetCause() != "credential_revoked" {
		t.Errorf("told %v", ev)
	}
}

func TestNoCredentialBelowItsLevel(t *testing.T) {
	c := startCluster(t, 1)
	a := &credentials{API: c.leader(t).api}
	_, err := a.CreateCredential(boss(t.Context()), &pb.CreateCredentialRequest{Name: "ci", Role: pb.Role_ROLE_READER})
	if state.ReasonOf(err) != state.ReasonFeature {
		t.Errorf("at level 1: %v", err)
	}
}
