package auth

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/leasehold-dev/leasehold/raftstore/access"
)

// byToken finds whose token it is. Each call is looked at anew: SHA-256 costs less
// than to remember an answer and to forget it in time.
func (a *Auth) byToken(ctx context.Context, token, from string) (access.Identity, error) {
	id, secret, err := access.ParseToken(token)
	if err != nil {
		return access.Identity{}, a.failLogin(errBad, "", from)
	}
	c, err := a.known(ctx, func() (access.Credential, bool) { return a.cfg.Lookup(id) })
	if err != nil {
		return access.Identity{}, err
	}
	return a.verify(&c, secret, id, from)
}

const (
	// freshPerSecond bounds how often the leader is asked for strangers: whoever
	// makes up names of credentials costs it no more.
	freshPerSecond = 100
	// freshWait is how long it may take.
	freshWait = 2 * time.Second
)

// known looks for a credential, and once more when this server has caught up with
// what the cluster has acknowledged: what was made a moment ago is good everywhere.
// The zero credential is nobody's.
func (a *Auth) known(ctx context.Context, look func() (access.Credential, bool)) (access.Credential, error) {
	if c, ok := look(); ok {
		return c, nil
	}
	if a.cfg.Fresh == nil || !a.fresh.AllowN(a.cfg.Now(), 1) {
		return access.Credential{}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, freshWait)
	defer cancel()
	if err := a.cfg.Fresh(ctx); err != nil {
		return access.Credential{}, unsure()
	}
	if c, ok := look(); ok {
		return c, nil
	}
	return access.Credential{}, nil
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
	a.cfg.Proven(from)
	return c.Identity(), nil
}

// Login checks a name, or the id of a credential, and a password: its token or the
// part of it that is secret. It returns the token, which is presented with every
// call from then on. from is the caller's address. The error is a status.
func (a *Auth) Login(ctx context.Context, name, password, from string) (token string, err error) {
	if from == "" {
		from = addrOf(ctx)
	}
	c, secret, err := a.find(ctx, name, password)
	if err != nil {
		return "", err
	}
	if _, err := a.verify(&c, secret, name, from); err != nil {
		return "", err
	}
	return access.Token(c.ID, secret), nil
}

// find looks for a credential under a name or id, and takes the secret out of a
// password.
func (a *Auth) find(ctx context.Context, name, password string) (c access.Credential, secret []byte, err error) {
	c, err = a.known(ctx, func() (c access.Credential, ok bool) {
		if access.CheckID(name) == nil {
			c, ok = a.cfg.Lookup(name)
		}
		if !ok {
			c, ok = a.cfg.LookupName(name)
		}
		return c, ok
	})
	if err != nil || c.ID == "" {
		return access.Credential{}, nil, err
	}
	if !strings.HasPrefix(password, "lhc_") {
		password = "lhc_" + c.ID + "_" + password
	}
	id, secret, wrong := access.ParseToken(password)
	if wrong != nil || id != c.ID {
		return access.Credential{}, nil, nil
	}
	return c, secret, nil
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
	if a.lines.AllowN(a.cfg.Now(), 1) {
		a.log.Warn("login failed", "credential", who, "from", from, "cause", err, "more_since_last_line", a.unsaid.Swap(0))
	} else {
		a.unsaid.Add(1)
	}
	return a.fail(err)
}
