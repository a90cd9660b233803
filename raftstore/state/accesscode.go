package state

import (
	"slices"
	"time"

	"github.com/leasehold-dev/leasehold/raftstore/access"
)

const (
	credentialSize   = 41 // least bytes of an encoded credential
	frameCredentialN = 64 // credentials in one frame: a scope may be long
	ownerSize        = 10 // least bytes of an encoded ownerRow
)

// ownerFollows is the Owner of a command that is about to be read and has one.
const ownerFollows = "?"

// codeOwner is the last field of a command that has an owner; the number says
// whether it does. One that reads as none would be another command.
func codeOwner(c *coder, owner *string) {
	if *owner == "" {
		return
	}
	if text(c, owner); c.reading && c.err == nil && *owner == "" {
		c.fail("owner")
	}
}

func (p *PutCredential) code(c *coder) { codeCredential(c, &p.Credential) }

func (r *RevokeCredential) code(c *coder) { text(c, &r.ID) }

func (k *SetKeyring) code(c *coder) {
	number(c, &k.Version)
	list(c, &k.Keys, 1, blob)
}

func codeCredential(c *coder, v *access.Credential) {
	text(c, &v.ID)
	text(c, &v.Name)
	hash := v.Hash[:]
	if c.reading {
		if len(c.buf) < len(hash) {
			c.fail("hash is cut off")
			return
		}
		copy(hash, c.buf)
		c.buf = c.buf[len(hash):]
	} else {
		c.buf = append(c.buf, hash...)
	}
	number(c, &v.Role)
	list(c, &v.Scope.Keyspaces, 1, text[string])
	list(c, &v.Scope.Prefixes, 1, text[string])
	moment(c, &v.Created)
	moment(c, &v.Expires)
	text(c, &v.By)
}

// moment codes a time in milliseconds; 0 is none.
func moment(c *coder, t *time.Time) {
	var ms int64
	if !t.IsZero() {
		ms = t.UnixMilli()
	}
	if c.varint(&ms); c.reading {
		if *t = (time.Time{}); ms != 0 {
			*t = fromMillis(ms)
		}
	}
}

// ownerRow is the owner of one session. A lease of keys that was barred is
// marked here: its own frame is of before there were any.
type ownerRow struct {
	session SessionID
	owner   string
	barred  bool
}

func (o *ownerRow) code(c *coder) {
	fixed(c, &o.session)
	text(c, &o.owner)
	c.flag(&o.barred)
}

// appendAccess encodes what is about who may do what, nothing if there is none.
func (s *State) appendAccess(b []byte) []byte {
	for part := range slices.Chunk(sortedKeys(s.credentials.byID), frameCredentialN) {
		b = appendFrame(b, frameCredentials, func(c *coder) {
			c.length(len(part), credentialSize)
			for _, id := range part {
				codeCredential(c, s.credentials.byID[id])
			}
		})
	}
	if s.keyring.Version > 0 {
		b = appendFrame(b, frameKeyring, s.keyring.code)
	}
	var rows []ownerRow
	for _, x := range s.sessionOrder {
		if x.Owner != "" {
			rows = append(rows, ownerRow{x.ID, x.Owner, x.isLease() && x.barred()})
		}
	}
	for part := range slices.Chunk(rows, frameSessionN) {
		b = appendFrame(b, frameOwners, func(c *coder) {
			list(c, &part, ownerSize, func(c *coder, o *ownerRow) { o.code(c) })
		})
	}
	return b
}

func (k *Keyring) code(c *coder) {
	number(c, &k.Version)
	list(c, &k.Keys, 1, blob)
}

// decodeAccess reads a frame of those about who may do what.
func (in *restorer) decodeAccess(kind uint8, c *coder) error {
	s := in.s
	switch kind {
	case frameCredentials:
		var part []access.Credential
		if list(c, &part, credentialSize, codeCredential); c.err != nil {
			return nil
		}
		for i := range part {
			v := &part[i]
			if _, twice := s.credentials.byID[v.ID]; twice {
				return damaged("credential %.64q comes twice", v.ID)
			}
			s.credentials.add(v)
		}
	case frameKeyring:
		if s.keyring.Version != 0 {
			return damaged("keyring comes twice")
		}
		if s.keyring.code(c); c.err == nil && s.keyring.Version == 0 {
			return damaged("keyring without a version")
		}
	case frameOwners:
		var part []ownerRow
		list(c, &part, ownerSize, func(c *coder, o *ownerRow) { o.code(c) })
		if c.err == nil {
			return in.ownerRows(part)
		}
	default:
		return damaged("unknown frame %d", kind)
	}
	return nil
}

// ownerRows comes after all sessions.
func (in *restorer) ownerRows(part []ownerRow) error {
	for _, o := range part {
		x, ok := in.s.sessions[o.session]
		switch {
		case !ok || o.session <= in.lastOwned || o.owner == "":
			return damaged("owner of session %d is out of place", o.session)
		case o.barred && !x.isLease():
			return damaged("session %d of a worker is barred twice", o.session)
		case o.barred:
			x.State = SessionEvicted
		}
		in.lastOwned, x.Owner = o.session, in.same(o.owner)
	}
	return nil
}
