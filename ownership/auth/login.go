package auth

import (
	"context"
	"errors"
	"strings"

	"github.com/leasehold-dev/leasehold/raftstore/access"
)

// byToken finds whose token it is. Each call is looked at anew: SHA-256 costs less
// than to remember an answer and to forget it in time.
func (a *Auth) byToken(token, from string) (access.Identity, error) {
	id, secret, err := access.ParseToken(token)
	if err != nil {
		return access.Identity{}, a.failLogin(errBad, "", from)
	}
	c, _ := a.cfg.Lookup(id)
	return a.verify(&c, secret, id, from)
}

// verify holds a secret against a credential; the zero one has no secret. Only who
// knows the secret learns that it is too late for it.
//
// A valid secret is never held up by failures of others: with 32 random bytes there
// is nothing to guess, and so nothing that locking out could protect.
func (a *Auth) verify(c *access.Credential, secret []byte, who, from string) (access.Identity, error) {
	switch {
	case !c.Matches(secret) || c.ID == "" || c.Role == access.Server || !c.Role.Known():
		return access.Identity{}, a.failLogin(errBad, who, from)
	case c.Expired(a.cfg.Now()):
		return access.Identity{}, a.failLogin(errOld, who, from)
	}
	return c.Identity(), nil
}

// Login checks a name, or the id of a credential, and a password: its token or the
// part of it that is secret. It returns the token, which is presented with every
// call from then on. from is the caller's address. The error is a status.
func (a *Auth) Login(ctx context.Context, name, password, from string) (token string, err error) {
	if from == "" {
		from = addrOf(ctx)
	}
	c, secret := a.find(name, password)
	if _, err := a.verify(&c, secret, name, from); err != nil {
		return "", err
	}
	return access.Token(c.ID, secret), nil
}

// find looks for a credential under a name or id, and takes the secret out of a
// password.
func (a *Auth) find(name, password string) (c access.Credential, secret []byte) {
	ok := false
	if access.CheckID(name) == nil {
		c, ok = a.cfg.Lookup(name)
	}
	if !ok {
		if c, ok = a.cfg.LookupName(name); !ok {
			return access.Credential{}, nil
		}
	}
	if !strings.HasPrefix(password, "lhc_") {
		password = "lhc_" + c.ID + "_" + password
	}
	id, secret, err := access.ParseToken(password)
	if err != nil || id != c.ID {
		return access.Credential{}, nil
	}
	return c, secret
}

// valid reports whether the credential of an identity still is one.
func (a *Auth) valid(id access.Identity) bool {
	c, ok := a.cfg.Lookup(id.Credential)
	return ok && !c.Expired(a.cfg.Now())
}

// fail counts a failure and is the status of it.
func (a *Auth) fail(err error) error {
	var f *failure
	if !errors.As(err, &f) {
		return err
	}
	a.cfg.Metrics.AuthFailed(f.word)
	return f.status()
}

// failLogin is fail for a secret that was presented. who is the name or id of the
// credential, if it was possible to tell.
func (a *Auth) failLogin(err error, who, from string) error {
	if !a.failed.allow(who, from) {
		a.cfg.Metrics.LimitHit("failed_logins")
		return limited()
	}
	if access.CheckID(who) != nil {
		who = "" // a name that somebody has typed may be anything, a secret as well
	}
	a.log.Warn("login failed", "credential", who, "from", from, "cause", err)
	return a.fail(err)
}
