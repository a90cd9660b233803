package access

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Credential proves an identity to a server by a secret that only the holder
// knows; servers keep its hash. Times are whole milliseconds in UTC.
type Credential struct {
	ID string // 12 characters of a-z and 0-9, drawn at random; never reused
	// Name is what people and etcd's clients call it; unique at one time.
	Name string
	// Hash is SHA-256 of the secret. The secret is 32 random bytes, which cannot
	// be guessed however fast a hash is.
	Hash    [sha256.Size]byte
	Role    Role // not Server
	Scope   Scope
	Created time.Time
	Expires time.Time // zero: never
	By      string    // who made it, as Identity.String says
}

// tokenPrefix begins every token, so that scanners for leaked secrets know it.
const tokenPrefix = "lhc_"

// Sizes of the parts of a token.
const (
	IDLen     = 12 // characters of a credential's id
	SecretLen = 32 // bytes of its secret
)

var secretEncoding = base64.RawURLEncoding.Strict()

// Token is what the holder of a credential presents: lhc_<id>_<secret>, the secret
// in unpadded base64url. secret has SecretLen bytes.
func Token(id string, secret []byte) string {
	return tokenPrefix + id + "_" + secretEncoding.EncodeToString(secret)
}

// errToken says nothing of what was given: it may be a secret.
var errToken = errors.New("not a credential: want lhc_, an id of 12 characters, _ and 43 characters")

// ParseToken takes a token apart. Its error never has a part of it.
func ParseToken(token string) (id string, secret []byte, err error) {
	rest, ok := strings.CutPrefix(token, tokenPrefix)
	if !ok {
		return "", nil, errToken
	}
	id, text, ok := strings.Cut(rest, "_")
	if !ok || CheckID(id) != nil || len(text) != secretEncoding.EncodedLen(SecretLen) {
		return "", nil, errToken
	}
	secret, err = secretEncoding.DecodeString(text)
	if err != nil || len(secret) != SecretLen {
		return "", nil, errToken
	}
	return id, secret, nil
}

// CheckID refuses what cannot be the id of a credential.
func CheckID(id string) error {
	if len(id) != IDLen || strings.Trim(id, "abcdefghijklmnopqrstuvwxyz0123456789") != "" {
		return fmt.Errorf("credential id %q: want %d characters of a-z and 0-9", clip(id), IDLen)
	}
	return nil
}

// HashSecret is what a Credential keeps of a secret.
func HashSecret(secret []byte) [sha256.Size]byte { return sha256.Sum256(secret) }

// Matches compares a secret with the hash, in a time that tells nothing of it.
func (c *Credential) Matches(secret []byte) bool {
	h := HashSecret(secret)
	return subtle.ConstantTimeCompare(h[:], c.Hash[:]) == 1
}

// Expired reports whether the credential has run out at a time.
func (c *Credential) Expired(now time.Time) bool {
	return !c.Expires.IsZero() && !now.Before(c.Expires)
}

// Identity is who the holder of the credential is.
func (c *Credential) Identity() Identity {
	return Identity{Source: Bearer, Name: c.Name, Role: c.Role, Scope: c.Scope, Credential: c.ID, Expires: c.Expires}
}
