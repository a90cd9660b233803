package access

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// Source is how an identity was proven.
type Source string

// The sources.
const (
	// Certificate: by a client certificate of the cluster's authority.
	Certificate Source = "certificate"
	// Bearer: by the secret of a Credential.
	Bearer Source = "credential"
	// Open: not at all. The server runs without TLS and believes everybody.
	Open Source = "open"
)

// Identity is somebody who calls. The zero Identity is nobody and may do nothing.
type Identity struct {
	Source Source `json:"source,omitempty"`
	// Name is the certificate's or the credential's.
	Name string `json:"name,omitempty"`
	Role Role   `json:"role,omitempty"`
	// Scope bounds the role.
	Scope Scope `json:"scope"`
	// Credential is the id of the credential, Serial the certificate's number in
	// hexadecimal digits. One of them is empty.
	Credential string `json:"credential,omitempty"`
	Serial     string `json:"serial,omitempty"`
	// Expires is when the proof runs out; zero: it does not.
	Expires time.Time `json:"expires,omitzero"`
}

// Anybody is who calls a server that runs without TLS: everybody may do everything.
func Anybody() Identity { return Identity{Source: Open, Role: Operator, Scope: Everywhere()} }

// Owner is what a session remembers of who opened it: the same for as long as the
// identity lives, and for no other. It is empty for Anybody, and for nobody.
func (id Identity) Owner() string {
	switch id.Source {
	case Certificate:
		return id.Role.String() + "/" + id.Name
	case Bearer:
		return CredentialOwner(id.Credential)
	}
	return ""
}

// CredentialOwner is the Owner of an identity that a credential has proven.
func CredentialOwner(id string) string { return "credential/" + id }

// String names an identity in logs.
func (id Identity) String() string {
	switch id.Source {
	case Certificate:
		return fmt.Sprintf("%s/%s (certificate %s)", id.Role, id.Name, id.Serial)
	case Bearer:
		return fmt.Sprintf("%s/%s (credential %s)", id.Role, id.Name, id.Credential)
	case Open:
		return "anybody"
	}
	return "nobody"
}

// MayUse reports whether the identity may act for a session, or a lease of keys,
// that owner opened: its own, one of before there were owners, or any as an
// operator of everything. Servers act for others under the others' identities.
func (id Identity) MayUse(owner string) bool {
	switch {
	case id.Role == 0:
		return false
	case owner == "", id.Role == Operator && id.Scope.AllKeyspaces() && id.Scope.AllKeys():
		return true
	}
	return id.Owner() == owner
}

// wireIdentity has the prefixes as bytes: JSON would replace those that are no text.
type wireIdentity struct {
	Identity
	Prefixes [][]byte `json:"prefixes,omitempty"`
}

// Encode writes an identity for another server of the cluster, in characters that
// any header takes.
func (id Identity) Encode() string {
	w := wireIdentity{Identity: id}
	for _, p := range id.Scope.Prefixes {
		w.Prefixes = append(w.Prefixes, []byte(p))
	}
	w.Scope.Prefixes = nil
	b, err := json.Marshal(w)
	if err != nil {
		return "" // its times come from certificates and the state, where they are in range: nobody
	}
	return base64.RawURLEncoding.EncodeToString(b)
}

// maxEncoded is far above what the limits of a Scope allow.
const maxEncoded = 256 << 10

// Decode reads what Encode has written. What is no identity is an error, never
// Anybody: only a server that believes everybody itself says that.
func Decode(s string) (Identity, error) {
	if len(s) > maxEncoded {
		return Identity{}, fmt.Errorf("identity of %d bytes: at most %d", len(s), maxEncoded)
	}
	var w wireIdentity
	raw, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil || json.Unmarshal(raw, &w) != nil {
		return Identity{}, errors.New("not an identity")
	}
	id := w.Identity
	id.Scope.Prefixes = nil
	for _, p := range w.Prefixes {
		id.Scope.Prefixes = append(id.Scope.Prefixes, string(p))
	}
	switch {
	case id.Source != Certificate && id.Source != Bearer:
		return Identity{}, errors.New("an identity without a proof")
	case !id.Role.Known():
		return Identity{}, errors.New("an identity without a role")
	case id.Name == "" || id.Source == Bearer && CheckID(id.Credential) != nil:
		return Identity{}, errors.New("an identity without a name")
	}
	if err := id.Scope.Validate(); err != nil {
		return Identity{}, fmt.Errorf("identity %s: %w", id, err)
	}
	return id, nil
}

type contextKey struct{}

// NewContext returns a context of a call by id.
func NewContext(ctx context.Context, id Identity) context.Context {
	return context.WithValue(ctx, contextKey{}, id)
}

// FromContext is who makes the call of a context: nobody, if nothing has been
// found out about that.
func FromContext(ctx context.Context) Identity {
	id, _ := ctx.Value(contextKey{}).(Identity)
	return id
}
