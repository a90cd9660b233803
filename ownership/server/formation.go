package server

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
)

// Forming a cluster from nothing is the one moment at which two servers could
// start two histories. So all must see the same servers, none may have state,
// each is asked directly, and only the one with the lowest id bootstraps, with
// the sorted configuration of all; the others receive it through the log.

// candidate is a server as gossip shows it.
type candidate struct {
	id, raftAddr, grpcAddr, hash string
	expect                       int
	hasState                     bool
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
	seen = slices.Clone(seen)
	slices.SortFunc(seen, func(a, b candidate) int { return strings.Compare(a.id, b.id) })
	v := verdict{hash: formationHash(expect, seen), peers: seen}
	for _, c := range seen {
		if c.hasState {
			v.waiting = fmt.Sprintf("server %s belongs to a cluster already: waiting to be added to it", c.id)
			return v
		}
	}
	switch {
	case expect == 0:
		v.waiting = "no --bootstrap-expect: waiting to be added to a cluster"
	case len(seen) < expect:
		v.waiting = fmt.Sprintf("%d of %d servers seen", len(seen), expect)
	case len(seen) > expect:
		v.waiting = fmt.Sprintf("%d servers seen, more than --bootstrap-expect %d", len(seen), expect)
	default:
		v.waiting, v.bootstrap = agree(self, expect, seen, v.hash)
	}
	return v
}

func agree(self string, expect int, seen []candidate, hash string) (waiting string, bootstrap bool) {
	for _, c := range seen {
		if c.expect != expect {
			return fmt.Sprintf("server %s has --bootstrap-expect %d, not %d", c.id, c.expect, expect), false
		}
		if c.id != self && c.hash != hash {
			return fmt.Sprintf("server %s does not see the same servers yet", c.id), false
		}
	}
	if seen[0].id != self {
		return fmt.Sprintf("server %s, the lowest id, forms the cluster", seen[0].id), false
	}
	return "", true
}

func formationHash(expect int, sorted []candidate) string {
	h := sha256.New()
	fmt.Fprintf(h, "%d\n", expect)
	for _, c := range sorted {
		fmt.Fprintf(h, "%q %q\n", c.id, c.raftAddr)
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}
