package state

import (
	"maps"
	"time"

	"github.com/leasehold-dev/leasehold/raftstore/access"
	"pgregory.net/rapid"
)

var credentialIDs = []string{"aaaaaaaaaaaa", "bbbbbbbbbbbb", "cccccccccccc", "bad"}

// owner is mostly nobody, so that the other promises are tried as much as ever.
func (w *world) owner() string {
	return rapid.SampledFrom([]string{
		"", "", "", "", "worker/w1", access.CredentialOwner("aaaaaaaaaaaa"), access.CredentialOwner("bbbbbbbbbbbb"), "bad\nowner",
	}).Draw(w.t, "owner")
}

func (w *world) accessCommand() Command {
	id := rapid.SampledFrom(credentialIDs).Draw(w.t, "credential")
	switch rapid.IntRange(0, 4).Draw(w.t, "access command") {
	case 0, 1:
		return &PutCredential{Credential: access.Credential{
			ID: id, Name: rapid.SampledFrom([]string{"x", "y", "no good"}).Draw(w.t, "credential name"),
			Role: access.Role(rapid.IntRange(0, 5).Draw(w.t, "role")), Scope: access.Everywhere(),
			Created: time.UnixMilli(int64(w.index)).UTC(),
		}}
	case 2:
		return &RevokeCredential{ID: id}
	case 3:
		c := &SetKeyring{Version: w.s.keyring.Version + uint64(rapid.IntRange(0, 1).Draw(w.t, "version"))}
		for range rapid.IntRange(0, 5).Draw(w.t, "gossip keys") {
			c.Keys = append(c.Keys, []byte("0123456789abcde"+rapid.SampledFrom([]string{"", "1", "2", "3", "4"}).Draw(w.t, "gossip key")))
		}
		return c
	default:
		return &RaiseFeature{Term: w.term, Level: FeatureAccess}
	}
}

// seenAccess is what the promises about owners are about, before an entry.
type seenAccess struct {
	live     map[SessionID]string // owner of each session that is not barred
	worker   map[SessionID]string
	byID     map[string]*access.Credential
	keyring  uint64
	released bool // owners are known
}

func lookAtAccess(s *State) seenAccess {
	v := seenAccess{
		live: map[SessionID]string{}, worker: map[SessionID]string{}, byID: maps.Clone(s.credentials.byID),
		keyring: s.keyring.Version, released: s.Feature() >= FeatureAccess,
	}
	for x := range s.Sessions() {
		if !x.barred() {
			v.live[x.ID], v.worker[x.ID] = x.Owner, x.Worker
		}
	}
	return v
}

// accessPromises: a worker id never goes from one who uses it to somebody else,
// a session keeps its owner, and a credential that is revoked leaves nothing of
// its holder's that could go on.
func accessPromises(t *rapid.T, s *State, before seen, b *Batch, results []Result) {
	was := before.access
	if !was.released && s.Feature() < FeatureAccess && (s.CredentialCount() > 0 || s.keyring.Version > 0) {
		t.Fatal("credentials at a level that knows none")
	}
	freed := map[SessionID]bool{} // barred or ended by something else in the entry
	sets := uint64(0)
	for i, c := range b.Commands {
		r := &results[i]
		switch c := c.(type) {
		case *CloseSession:
			freed[c.Session] = true
		case *Expire:
			for _, e := range c.Sessions {
				freed[e.Session] = true
			}
		case *Evict:
			if w, ok := s.Worker(c.Worker); ok {
				for id, name := range was.worker {
					freed[id] = freed[id] || name == w.ID
				}
			}
		case *RevokeCredential:
			if r.Err != nil {
				continue
			}
			for id, owner := range was.live {
				freed[id] = freed[id] || owner == access.CredentialOwner(c.ID)
			}
			if r.Credential == nil || r.Credential.ID != c.ID {
				t.Fatalf("revoked %s, told %v", c.ID, r.Credential)
			}
			if i == len(b.Commands)-1 {
				nothingGoesOn(t, s, c.ID)
			}
		case *SetKeyring:
			if r.Err == nil {
				sets++
			}
		}
	}
	if s.keyring.Version != was.keyring+sets {
		t.Fatalf("keyring went from version %d to %d in %d sets", was.keyring, s.keyring.Version, sets)
	}
	for i, c := range b.Commands {
		open, ok := c.(*OpenSession)
		if !ok || results[i].Err != nil {
			continue
		}
		for id, name := range was.worker {
			if owner := was.live[id]; name == open.Worker && owner != "" && owner != open.Owner && !freed[id] {
				t.Fatalf("worker %s of %s was opened by %q", name, owner, open.Owner)
			}
		}
	}
	for id, owner := range was.live {
		if x, ok := s.Session(id); ok && x.Owner != owner && !freed[id] {
			t.Fatalf("session %d of %q belongs to %q", id, owner, x.Owner)
		}
	}
}

func nothingGoesOn(t *rapid.T, s *State, id string) {
	if _, ok := s.Credential(id); ok {
		t.Fatalf("credential %s was revoked and lives", id)
	}
	for x := range s.Sessions() {
		if x.Owner == access.CredentialOwner(id) && !x.barred() {
			t.Fatalf("session %d goes on without its credential", x.ID)
		}
	}
}
