package state

import (
	"errors"
	"fmt"
	"iter"
	"reflect"
	"time"

	"github.com/leasehold-dev/leasehold/raftstore/access"
)

// MaxCredentials is how many may live at a time.
const MaxCredentials = 10_000

// lastTime is the last one that can be written with a year of four digits.
var lastTime = time.Date(9999, 12, 31, 23, 59, 59, 999_000_000, time.UTC)

// credentials are those that live, by id and by name. What is in them is never
// changed, only replaced.
type credentials struct {
	byID   map[string]*access.Credential
	byName map[string]*access.Credential
}

func newCredentials() credentials {
	return credentials{byID: make(map[string]*access.Credential), byName: make(map[string]*access.Credential)}
}

func (t *credentials) add(c *access.Credential) { t.byID[c.ID], t.byName[c.Name] = c, c }

func (t *credentials) remove(c *access.Credential) {
	delete(t.byID, c.ID)
	delete(t.byName, c.Name)
}

// Credential looks up a credential that has not been revoked, by id. It may have
// expired: the state knows no time of day. Its Scope is read-only.
func (s *State) Credential(id string) (access.Credential, bool) { return found(s.credentials.byID[id]) }

// CredentialByName is Credential by name.
func (s *State) CredentialByName(name string) (access.Credential, bool) {
	return found(s.credentials.byName[name])
}

func found(c *access.Credential) (access.Credential, bool) {
	if c == nil {
		return access.Credential{}, false
	}
	return *c, true
}

// Credentials yields all of them by name.
func (s *State) Credentials() iter.Seq[access.Credential] {
	return func(yield func(access.Credential) bool) {
		for _, name := range sortedKeys(s.credentials.byName) {
			if !yield(*s.credentials.byName[name]) {
				return
			}
		}
	}
}

// CredentialCount is how many there are.
func (s *State) CredentialCount() int { return len(s.credentials.byID) }

// putCredential does not remember the ids of those that were revoked: an id is
// drawn from 60 random bits, and so is never drawn again.
func (s *State) putCredential(p *PutCredential) error {
	c := p.Credential
	c.Created, c.Expires = millis(c.Created), millis(c.Expires)
	if err := validateCredential(&c); err != nil {
		return err
	}
	if old, ok := s.credentials.byID[c.ID]; ok {
		if reflect.DeepEqual(*old, c) {
			return nil
		}
		return refuse(ReasonExists, "credential", "id", c.ID, "an id that was not given before")
	}
	if _, ok := s.credentials.byName[c.Name]; ok {
		return refuse(ReasonExists, "credential", "name", c.Name, "a name that no credential has, also none that has expired")
	}
	if n := s.CredentialCount(); n >= MaxCredentials {
		return refuse(ReasonInvalid, "credential", "credentials", fmt.Sprint(n+1), fmt.Sprintf("at most %d; revoke those that have expired", MaxCredentials))
	}
	s.credentials.add(&c)
	s.emitCredential(KindCredentialCreate, &c)
	return nil
}

func (s *State) revokeCredential(c *RevokeCredential, r *Result) {
	old, ok := s.credentials.byID[c.ID]
	if !ok {
		r.Err = refuse(ReasonNotFound, "credential", "id", c.ID, "a credential that has not been revoked")
		return
	}
	s.credentials.remove(old)
	s.emitCredential(KindCredentialRevoke, old)
	r.Credential = old
	r.Barred = s.barOwned(access.CredentialOwner(old.ID), CauseCredentialRevoked)
}

func (s *State) emitCredential(kind Kind, c *access.Credential) {
	e := s.emit(kind, CauseNone)
	e.Worker, e.From = c.Name, c.ID
}

// validateCredential checks every field. An error never has the hash. What package
// access lets pass is what the log means: servers that differ in it would differ in
// their states, so its limits change with a feature level only.
func validateCredential(c *access.Credential) error {
	const what = "credential"
	if access.CheckID(c.ID) != nil {
		return refuse(ReasonInvalid, what, "id", c.ID, fmt.Sprintf("%d characters of a-z and 0-9", access.IDLen))
	}
	if err := ValidateName(what, "name", c.Name); err != nil {
		return err
	}
	if !c.Role.Known() || c.Role == access.Server {
		return refuse(ReasonInvalid, what, "role", c.Role.String(), "reader, worker or operator")
	}
	if err := c.Scope.Validate(); err != nil {
		return refuse(ReasonInvalid, what, "scope", fmt.Sprintf("%d keyspaces, %d key prefixes", len(c.Scope.Keyspaces), len(c.Scope.Prefixes)), err.Error())
	}
	if !c.Created.After(time.UnixMilli(0)) || c.Created.After(lastTime) {
		return refuse(ReasonInvalid, what, "created", c.Created.String(), "a time from 1970 to 9999")
	}
	if !c.Expires.IsZero() && (!c.Expires.After(c.Created) || c.Expires.After(lastTime)) {
		return refuse(ReasonInvalid, what, "expires", c.Expires.String(), "after it was created, before the year 10000")
	}
	return validateText(what, "by", c.By, MaxTextLen)
}

// millis is a time as the log has it, in whole milliseconds; none stays none.
func millis(t time.Time) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return fromMillis(t.UnixMilli())
}

// checkAccess: the credentials are within their limits and the two indices say
// the same, the keyring is as SetKeyring lets it be, and below their level there
// is neither.
func (s *State) checkAccess() error {
	if n := s.CredentialCount(); n != len(s.credentials.byName) || n > MaxCredentials {
		return fmt.Errorf("%d credentials have %d names", n, len(s.credentials.byName))
	}
	for _, id := range sortedKeys(s.credentials.byID) {
		c := s.credentials.byID[id]
		if c.ID != id || s.credentials.byName[c.Name] != c {
			return fmt.Errorf("credential %s is not in its place", id)
		}
		if err := validateCredential(c); err != nil {
			return err
		}
	}
	if s.Feature() < FeatureAccess && (s.CredentialCount() > 0 || s.keyring.Version > 0) {
		return fmt.Errorf("credentials or a keyring at feature level %d", s.Feature())
	}
	if s.keyring.Version == 0 {
		if len(s.keyring.Keys) > 0 {
			return errors.New("keys of gossip without a version")
		}
		return nil
	}
	return validateKeyring(s.keyring.Keys)
}
