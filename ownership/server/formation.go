package server

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/leasehold-dev/leasehold/ownership/api"
)

// Forming a cluster from nothing is the one moment at which two servers could
// start two histories. So all must see the same servers, none may have state,
// each is asked directly, and only the one with the lowest id bootstraps, with
// the sorted configuration of all; the others receive it through the log. This
// file decides, forming.go asks and does.

// candidate is a server as gossip shows it.
type candidate struct {
	id, store, raftAddr, grpcAddr, hash string
	expect                              int
	hasState                            bool
}

// verdict says what a server that has no state should do now.
type verdict struct {
	bootstrap bool
	hash      string // of the configuration it sees, to be told to others
	waiting   string // why not yet, for status and logs
	peers     []candidate
}

// judge decides from what gossip shows, self included. It is pure; the direct
// confirmation of each peer comes after it says bootstrap.
func judge(self string, expect int, seen []candidate) verdict {
	v := survey(seen)
	for _, c := range v.peers {
		if c.hasState {
			v.waiting = fmt.Sprintf("server %s belongs to a cluster already: waiting to be added to it; if %s was never in it, ask an operator: leasehold raft add %s",
				c.id, self, self)
			return v
		}
	}
	switch n := len(v.peers); {
	case expect == 0:
		v.waiting = fmt.Sprintf("no --bootstrap-expect, %d %s seen: waiting to be added to a cluster (leasehold raft add %s) or for one to be formed (leasehold cluster init)",
			n, plural(n, "server"), self)
	case n < expect:
		v.waiting = fmt.Sprintf("%d of %d servers seen", n, expect)
	case n > expect:
		v.waiting = fmt.Sprintf("%d servers seen, more than --bootstrap-expect %d", n, expect)
	default:
		v.waiting = agree(self, expect, v)
		if v.waiting == "" && v.peers[0].id != self {
			v.waiting = fmt.Sprintf("server %s, the lowest id, forms the cluster", v.peers[0].id)
		}
		v.bootstrap = v.waiting == ""
	}
	return v
}

// judgeInit decides about a formation that an operator has asked for. Servers
// that were started with --bootstrap-expect must agree with it, the others need
// not expect anything. A refusal is final; waiting may end by itself.
func judgeInit(self string, expect int, seen []candidate) (v verdict, refused error) {
	v = survey(seen)
	var ids []string
	for _, c := range v.peers {
		if c.hasState {
			return v, &api.FormationError{Exists: true, Why: fmt.Sprintf("server %s belongs to a cluster already", c.id)}
		}
		ids = append(ids, c.id)
	}
	if n := len(v.peers); n != expect {
		v.waiting = fmt.Sprintf("%d %s seen (%s), not %d", n, plural(n, "server"), strings.Join(ids, ", "), expect)
		return v, nil
	}
	for _, c := range v.peers {
		if c.expect != 0 && c.expect != expect {
			return v, &api.FormationError{Why: fmt.Sprintf("server %s has --bootstrap-expect %d, not %d", c.id, c.expect, expect)}
		}
	}
	v.waiting = agree(self, 0, v)
	v.bootstrap = v.waiting == "" && v.peers[0].id == self
	return v, nil
}

func plural(n int, what string) string {
	if n == 1 {
		return what
	}
	return what + "s"
}

// survey sorts what is seen.
func survey(seen []candidate) verdict {
	seen = slices.Clone(seen)
	slices.SortFunc(seen, func(a, b candidate) int { return strings.Compare(a.id, b.id) })
	return verdict{hash: formationHash(seen), peers: seen}
}

// agree says who does not see what this server sees, or expects another number
// of servers; 0 asks for no number.
func agree(self string, expect int, v verdict) (waiting string) {
	for _, c := range v.peers {
		switch {
		case expect != 0 && c.expect != expect:
			return fmt.Sprintf("server %s has --bootstrap-expect %d, not %d", c.id, c.expect, expect)
		case c.id != self && c.hash != v.hash:
			return fmt.Sprintf("server %s does not see the same servers yet", c.id)
		}
	}
	return ""
}

func formationHash(sorted []candidate) string {
	h := sha256.New()
	for _, c := range sorted {
		fmt.Fprintf(h, "%q %q %q\n", c.id, c.store, c.raftAddr)
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}
