package auth

import (
	"context"
	"errors"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"github.com/leasehold-dev/leasehold/raftstore/access"
)

// A credential that was made a moment ago on another server is good here, too; who
// makes up names does not keep asking the leader for them.
func TestNewCredentialIsGoodEverywhere(t *testing.T) {
	secret := make([]byte, access.SecretLen)
	made := access.Credential{ID: id1, Name: "batch", Hash: access.HashSecret(secret), Role: access.Worker, Scope: access.Everywhere()}
	token := access.Token(id1, secret)
	now := time.Unix(1e9, 0)
	var here, asked int
	var broken error
	a := New(Config{
		Now: func() time.Time { return now },
		Lookup: func(id string) (access.Credential, bool) {
			return made, here > 0 && id == made.ID
		},
		LookupName: func(name string) (access.Credential, bool) { return made, here > 0 && name == made.Name },
		Fresh: func(context.Context) error {
			asked++
			if broken == nil {
				here++
			}
			return broken
		},
	})
	broken = errors.New("no leader")
	if _, err := a.byToken(t.Context(), token, "192.0.2.1:1"); status.Code(err) != codes.Unavailable || pb.ReasonOf(err) != pb.ReasonNoLeader {
		t.Errorf("nobody can be asked: %v", err)
	}
	broken = nil
	if id, err := a.byToken(t.Context(), token, "192.0.2.1:1"); err != nil || id.Name != "batch" || asked != 2 {
		t.Errorf("%v, %v after %d questions", id, err, asked)
	}
	here = 0
	if got, err := a.Login(t.Context(), "batch", token, "192.0.2.1:1"); err != nil || got != token || asked != 3 {
		t.Errorf("login: %v after %d questions", err, asked)
	}
	for range 3 * freshPerSecond {
		if _, err := a.byToken(t.Context(), access.Token("zzzzzzzzzzzz", secret), "192.0.2.2:1"); err == nil {
			t.Fatal("a stranger gets in")
		}
	}
	if asked > freshPerSecond+3 {
		t.Errorf("the leader was asked %d times in no time", asked)
	}
}
