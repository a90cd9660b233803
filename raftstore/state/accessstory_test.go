package state

import (
	"fmt"
	"time"

	"github.com/leasehold-dev/leasehold/raftstore/access"
)

func parseAccessCommand(word string, a args) (Command, bool) {
	switch word {
	case "cred":
		c := access.Credential{
			ID: a.str("id"), Name: a.str("name"), Hash: access.HashSecret([]byte(a.str("id"))), Created: time.UnixMilli(1), By: a.str("by"),
			Scope: access.Everywhere(),
		}
		c.Role, _ = access.ParseRole(a.str("role"))
		if a.str("ks") != "" {
			c.Scope = access.Scope{Keyspaces: []string{a.str("ks")}}
		}
		if s := a.str("created"); s != "" {
			c.Created = time.Unix(int64(num(s)), 0)
		}
		if s := a.str("expires"); s != "" {
			c.Expires = time.Unix(int64(num(s)), 0)
		}
		return &PutCredential{Credential: c}, true
	case "revokecred":
		return &RevokeCredential{ID: a.str("id")}, true
	case "keyring":
		c := &SetKeyring{Version: a.uint("version")}
		for _, key := range a.items() {
			c.Keys = append(c.Keys, []byte(key))
		}
		return c, true
	}
	return nil, false
}

// accessResult tells the answer of a RevokeCredential.
func (st *storyteller) accessResult(prefix string, r *Result) bool {
	if r.Credential == nil {
		return false
	}
	fmt.Fprintf(&st.out, "%srevoked %s %s barred=%d\n", prefix, r.Credential.ID, r.Credential.Name, r.Barred)
	return true
}

func (st *storyteller) showAccess() {
	for c := range st.s.Credentials() {
		fmt.Fprintf(&st.out, "credential %s %s %s %v by=%s", c.ID, c.Name, c.Role, c.Scope.Keyspaces, c.By)
		if !c.Expires.IsZero() {
			fmt.Fprintf(&st.out, " expires=%d", c.Expires.Unix())
		}
		fmt.Fprintln(&st.out)
	}
	if k := st.s.Keyring(); k.Version > 0 {
		fmt.Fprintf(&st.out, "keyring %s %q\n", k, k.Keys)
	}
}

func ownerText(x *Session) string {
	text := ""
	if x.Owner != "" {
		text = " owner=" + x.Owner
	}
	if x.isLease() && x.barred() {
		text += " " + x.State.String()
	}
	return text
}
