package api

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"

	pb "github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"github.com/leasehold-dev/leasehold/raftstore/access"
	"github.com/leasehold-dev/leasehold/raftstore/state"
	"github.com/leasehold-dev/leasehold/ring/gossip"
)

// gossips is GossipService: it changes the keyring in the state. What each member
// has installed of it, the leader sees through gossip.
type gossips struct {
	pb.UnimplementedGossipServiceServer
	*API
}

// GetKeyring tells which member has which keys.
func (a *gossips) GetKeyring(ctx context.Context, _ *pb.GetKeyringRequest) (*pb.Keyring, error) {
	v, err := a.viewKeys(ctx)
	if err != nil {
		return nil, err
	}
	return v.message(), nil
}

// AddGossipKey gives all members a key, which none encrypts with yet.
func (a *gossips) AddGossipKey(ctx context.Context, r *pb.AddGossipKeyRequest) (*pb.Keyring, error) {
	key := r.GetKey()
	if len(key) == 0 {
		key = make([]byte, gossip.KeyLen)
		_, _ = rand.Read(key) // it never fails
	} else if err := gossip.CheckKey(key); err != nil {
		return nil, invalid("key", fmt.Sprintf("of %d bytes", len(key)), "want 16, 24 or 32 bytes, or none to have one drawn")
	}
	v, err := a.changeableKeys(ctx)
	if err != nil {
		return nil, err
	}
	if i := v.index(gossip.DigestOf(key)); i >= 0 {
		if !bytes.Equal(v.keys[i], key) {
			return nil, failf(pb.ReasonConflict, "another key has the digest %s already: draw another", gossip.DigestOf(key))
		}
		return v.message(), nil // a repeated call
	}
	if len(v.keys) == state.MaxGossipKeys {
		return nil, fail(&pb.ErrorDetail{
			Reason: pb.ReasonConflict, Field: "key", Limit: fmt.Sprint(state.MaxGossipKeys),
			Message: fmt.Sprintf("there are %d keys, and at most %d: remove one that nobody encrypts with", len(v.keys), state.MaxGossipKeys),
		})
	}
	return a.setKeys(ctx, v, "added", gossip.DigestOf(key), append(slices.Clone(v.keys), bytes.Clone(key)))
}

// UseGossipKey makes all members encrypt with a key.
func (a *gossips) UseGossipKey(ctx context.Context, r *pb.UseGossipKeyRequest) (*pb.Keyring, error) {
	v, i, err := a.keyOf(ctx, r.GetDigest())
	if err != nil {
		return nil, err
	}
	if i == 0 {
		return v.message(), nil
	}
	d := v.digests[i]
	if lack := v.members.names(func(m keyMember) bool { return !m.keyring.Has(d) }); lack != "" && !r.GetForce() {
		return nil, refuseKey(d, "is not used yet: who does not have it could not read what the others send, and that is "+lack)
	}
	keys := slices.Clone(v.keys)
	return a.setKeys(ctx, v, "used", d, slices.Insert(slices.Delete(keys, i, i+1), 0, v.keys[i]))
}

// RemoveGossipKey makes all members forget a key.
func (a *gossips) RemoveGossipKey(ctx context.Context, r *pb.RemoveGossipKeyRequest) (*pb.Keyring, error) {
	v, i, err := a.keyOf(ctx, r.GetDigest())
	if err != nil {
		return nil, err
	}
	d := v.digests[i]
	if i == 0 {
		return nil, refuseKey(d, "is not removed: gossip is encrypted with it; use another one first")
	}
	if with := v.members.names(func(m keyMember) bool { return m.keyring.Encrypts(d) || !m.keyring.Has(v.digests[0]) }); with != "" && !r.GetForce() {
		return nil, refuseKey(d, "is not removed: what is encrypted with it could not be read any more, and that may come from "+with)
	}
	return a.setKeys(ctx, v, "removed", d, slices.Delete(slices.Clone(v.keys), i, i+1))
}

func refuseKey(d gossip.Digest, why string) error {
	return fail(&pb.ErrorDetail{
		Reason: pb.ReasonConflict, Field: "digest", Value: d.String(), Message: fmt.Sprintf("gossip key %s %s", d, why),
	})
}

// setKeys writes the keys to the log, on the condition that they are still those
// that were looked at.
func (a *gossips) setKeys(ctx context.Context, v *keyView, what string, d gossip.Digest, keys [][]byte) (*pb.Keyring, error) {
	results, err := a.cfg.Store.Propose(ctx, &state.SetKeyring{Version: v.version, Keys: keys})
	if err == nil {
		err = results[0].Err
	}
	if err != nil {
		return nil, err
	}
	a.log.Info("gossip key "+what, "digest", d.String(), "keyring_version", v.version+1, "by", access.FromContext(ctx).String())
	now, err := a.viewKeys(ctx)
	if err != nil {
		return nil, err
	}
	return now.message(), nil
}

// keyOf finds a key by the digest that a caller has given.
func (a *gossips) keyOf(ctx context.Context, digest string) (*keyView, int, error) {
	d, err := gossip.ParseDigest(digest)
	if err != nil {
		return nil, 0, invalid("digest", digest, "want the 8 hexadecimal digits of a key, as leasehold gossip keyring status shows them")
	}
	v, err := a.changeableKeys(ctx)
	if err != nil {
		return nil, 0, err
	}
	i := v.index(d)
	if i < 0 {
		return nil, 0, notFound("gossip key", "digest", digest)
	}
	return v, i, nil
}

// changeableKeys is viewKeys, or why there is nothing that could be changed.
func (a *gossips) changeableKeys(ctx context.Context) (*keyView, error) {
	v, err := a.viewKeys(ctx)
	switch {
	case err != nil:
		return nil, err
	case v.version != 0:
		return v, nil
	case v.refused != nil:
		return nil, v.refused
	case !v.encrypted():
		return nil, failf(pb.ReasonConflict, "gossip is in the clear, and there is no key to change: give all servers the same --gossip-key-file and start them again")
	}
	return nil, noLeader("the leader is just writing the keys that it was started with to the log")
}

// keyView is one look at the keys and at who has them.
type keyView struct {
	version uint64 // 0: they are those that this server was started with
	keys    [][]byte
	digests []gossip.Digest
	members keyMembers
	refused error // why a keyring cannot be in the log yet
}

func (v *keyView) encrypted() bool { return len(v.keys) > 0 }

func (v *keyView) index(d gossip.Digest) int { return slices.Index(v.digests, d) }

func (a *gossips) viewKeys(ctx context.Context) (*keyView, error) {
	v := &keyView{}
	var workers []string // with a live session that said that they gossip
	err := a.cfg.Store.Read(ctx, func(s *state.State) {
		now := s.Keyring()
		v.version, v.keys = now.Version, now.Keys
		v.refused = s.Permits(&state.SetKeyring{})
		for sess := range s.Sessions() {
			if sess.Gossip && sess.Worker != "" && (sess.State == state.SessionLive || sess.State == state.SessionLeaving) {
				workers = append(workers, sess.Worker)
			}
		}
	})
	if err != nil {
		return nil, err
	}
	if v.version == 0 && a.cfg.Gossip != nil {
		_, v.keys = a.cfg.Gossip.Keys()
	}
	for _, key := range v.keys {
		v.digests = append(v.digests, gossip.DigestOf(key))
	}
	v.members = a.keyMembers(workers)
	return v, nil
}

// keyMember is somebody whose keys matter.
type keyMember struct {
	role    gossip.Role
	id      string
	status  string // of gossip, or unknown
	keyring gossip.Keyring
}

// keyMembers are sorted: servers first, then by id.
type keyMembers []keyMember

// keyMembers are those that gossip shows, and those that the cluster counts on
// although gossip does not: servers of the group, and workers with a session. Who
// is dead and belongs to neither is not waited for.
func (a *gossips) keyMembers(workers []string) (all keyMembers) {
	if a.cfg.Gossip == nil {
		return nil
	}
	counted := map[string]bool{}
	for _, p := range a.cfg.Store.Status().Peers {
		counted[gossip.Name(gossip.RoleServer, p.ID)] = true
	}
	for _, id := range workers {
		counted[gossip.Name(gossip.RoleWorker, id)] = true
	}
	for _, m := range a.cfg.Gossip.Members() {
		if m.Up() || counted[m.Name] {
			all = append(all, keyMember{m.Meta.Role, m.Meta.ID, m.Status.String(), m.Meta.Keyring})
			delete(counted, m.Name)
		}
	}
	for name := range counted {
		id, isServer := strings.CutPrefix(name, gossip.Name(gossip.RoleServer, ""))
		if isServer {
			all = append(all, keyMember{role: gossip.RoleServer, id: id, status: "unknown"})
		} else {
			all = append(all, keyMember{role: gossip.RoleWorker, id: strings.TrimPrefix(name, gossip.Name(gossip.RoleWorker, "")), status: "unknown"})
		}
	}
	slices.SortFunc(all, func(x, y keyMember) int {
		if x.role != y.role {
			return strings.Compare(string(x.role), string(y.role))
		}
		return strings.Compare(x.id, y.id)
	})
	return all
}

// maxNamed is how many members an error names.
const maxNamed = 8

// names says who of the members matches, or "".
func (all keyMembers) names(match func(keyMember) bool) string {
	var text []string
	more := 0
	for _, m := range all {
		switch {
		case !match(m):
		case len(text) == maxNamed:
			more++
		default:
			text = append(text, fmt.Sprintf("%s %s (%s)", m.role, m.id, m.status))
		}
	}
	if more > 0 {
		text = append(text, fmt.Sprintf("%d more", more))
	}
	return strings.Join(text, ", ")
}

func (v *keyView) message() *pb.Keyring {
	m := &pb.Keyring{Encrypted: v.encrypted(), Version: v.version}
	for i, d := range v.digests {
		k := &pb.GossipKey{Digest: d.String(), Primary: i == 0}
		for _, member := range v.members {
			if member.keyring.Has(d) {
				k.Members++
			}
		}
		m.Keys = append(m.Keys, k)
	}
	want := gossip.KeyringOf(v.version, v.keys)
	for _, member := range v.members {
		k := &pb.KeyringMember{
			Role: string(member.role), Id: member.id, Status: member.status,
			UpToDate: member.keyring == want && member.status != "unknown",
		}
		for _, d := range member.keyring.Digests() {
			k.Digests = append(k.Digests, d.String())
		}
		m.Members = append(m.Members, k)
	}
	return m
}
