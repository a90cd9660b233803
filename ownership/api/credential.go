package api

import (
	"context"
	"crypto/rand"
	"fmt"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/leasehold-dev/leasehold/ownership/auth"
	pb "github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"github.com/leasehold-dev/leasehold/raftstore/access"
	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// Bounds of a credential's life.
const (
	minCredentialTTL = time.Second
	maxCredentialTTL = 10 * 365 * 24 * time.Hour
)

// credentials is CredentialService. Its handlers run on the leader, which draws
// the secret: it is in the answer, on its way to one caller, and nowhere else. The
// log, the state and its backups have a hash.
type credentials struct {
	pb.UnimplementedCredentialServiceServer
	*API
}

func (a *credentials) CreateCredential(ctx context.Context, r *pb.CreateCredentialRequest) (*pb.CreateCredentialResponse, error) {
	by := access.FromContext(ctx)
	c, err := a.asked(r)
	if err == nil {
		err = mayGive(by, &c)
	}
	if err != nil {
		return nil, err
	}
	c.ID, c.By = strings.ToLower(rand.Text()[:access.IDLen]), by.String()
	secret := make([]byte, access.SecretLen)
	_, _ = rand.Read(secret) // it never fails
	c.Hash = access.HashSecret(secret)
	if err := a.propose(ctx, &state.PutCredential{Credential: c}); err != nil {
		return nil, err
	}
	a.log.Info("credential created", "credential", c.ID, "name", c.Name, "role", c.Role.String(), "by", c.By)
	return &pb.CreateCredentialResponse{Credential: credentialOf(&c), Token: access.Token(c.ID, secret)}, nil
}

// asked is the credential that a request describes, without what is drawn.
func (a *credentials) asked(r *pb.CreateCredentialRequest) (c access.Credential, err error) {
	if err := checkName("name", r.GetName()); err != nil {
		return c, err
	}
	role := access.Role(r.GetRole())
	if !role.Known() || role == access.Server {
		return c, invalid("role", r.GetRole().String(), "want ROLE_READER, ROLE_WORKER or ROLE_OPERATOR; a server proves itself by a certificate")
	}
	scope := access.ScopeOf(r.GetKeyspaces(), r.GetKeyPrefixes())
	if err := (access.Scope{Keyspaces: scope.Keyspaces}).Validate(); err != nil {
		return c, invalid("keyspaces", strings.Join(scope.Keyspaces, ","), err.Error())
	}
	if err := (access.Scope{Prefixes: scope.Prefixes}).Validate(); err != nil {
		return c, invalid("key_prefixes", strings.Join(scope.Prefixes, ","), err.Error())
	}
	c = access.Credential{Name: r.GetName(), Role: role, Scope: scope, Created: a.cfg.Wall().UTC().Truncate(time.Millisecond)}
	if ms := r.GetTtlMs(); ms != 0 {
		if ms < minCredentialTTL.Milliseconds() || ms > maxCredentialTTL.Milliseconds() {
			return c, invalid("ttl_ms", strconv.FormatInt(ms, 10),
				fmt.Sprintf("want 0 (never expires), or %d to %d", minCredentialTTL.Milliseconds(), maxCredentialTTL.Milliseconds()))
		}
		c.Expires = c.Created.Add(time.Duration(ms) * time.Millisecond)
	}
	return c, nil
}

// mayGive refuses a credential that would allow more than its maker may do. One
// that a credential makes does not outlive it either: a secret that is known for an
// hour would be good for ever.
func mayGive(by access.Identity, c *access.Credential) error {
	switch {
	case by.Role != access.Operator:
		return auth.Denied(by, "credentials are made by the role operator")
	case !c.Scope.Within(by.Scope):
		return auth.Denied(by, "credential %q would reach beyond your own keyspaces and key prefixes", c.Name)
	case by.Source == access.Bearer && !by.Expires.IsZero() && (c.Expires.IsZero() || c.Expires.After(by.Expires)):
		return auth.Denied(by, "credential %q would outlive your own, which expires at %s", c.Name, by.Expires.UTC().Format(time.RFC3339))
	}
	return nil
}

// ListCredentials shows those that the caller could have made.
func (a *credentials) ListCredentials(ctx context.Context, _ *pb.ListCredentialsRequest) (*pb.ListCredentialsResponse, error) {
	by := access.FromContext(ctx)
	resp := &pb.ListCredentialsResponse{}
	err := a.cfg.Store.Read(ctx, func(s *state.State) {
		for c := range s.Credentials() {
			if c.Scope.Within(by.Scope) {
				resp.Items = append(resp.Items, credentialOf(&c))
			}
		}
	})
	return resp, err
}

// RevokeCredential finds a credential by id, or else by name. One that the caller
// could not have made is not there for them.
func (a *credentials) RevokeCredential(ctx context.Context, r *pb.RevokeCredentialRequest) (*pb.RevokeCredentialResponse, error) {
	by, ref := access.FromContext(ctx), r.GetCredential()
	if _, _, err := access.ParseToken(ref); err == nil {
		return nil, invalid("credential", "a token", "want the id or the name of a credential, not the secret itself")
	}
	if err := checkName("credential", ref); err != nil {
		return nil, err
	}
	var c access.Credential
	var found bool
	err := a.cfg.Store.Read(ctx, func(s *state.State) {
		if c, found = s.Credential(ref); !found {
			c, found = s.CredentialByName(ref)
		}
	})
	if err != nil {
		return nil, err
	}
	if !found || !c.Scope.Within(by.Scope) {
		return nil, notFound("credential", "credential", ref)
	}
	results, err := a.cfg.Store.Propose(ctx, &state.RevokeCredential{ID: c.ID})
	if err == nil {
		err = results[0].Err
	}
	if err != nil {
		return nil, err
	}
	a.log.Info("credential revoked", "credential", c.ID, "name", c.Name, "by", by.String(), "sessions", results[0].Barred)
	return &pb.RevokeCredentialResponse{Credential: credentialOf(&c), Sessions: int64(results[0].Barred)}, nil
}

func credentialOf(c *access.Credential) *pb.Credential {
	m := &pb.Credential{
		Id: c.ID, Name: c.Name, Role: pb.Role(c.Role), Keyspaces: c.Scope.Keyspaces, KeyPrefixes: c.Scope.Prefixes,
		Created: timestamppb.New(c.Created), CreatedBy: c.By,
	}
	if !c.Expires.IsZero() {
		m.Expires = timestamppb.New(c.Expires)
	}
	return m
}
