package sidecar

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/worker"
)

// Variables that a command finds. All begin with LEASEHOLD_.
const (
	envKeyspace   = "LEASEHOLD_KEYSPACE"
	envPartitions = "LEASEHOLD_PARTITIONS" // how many the keyspace has
	envPartition  = "LEASEHOLD_PARTITION"
	envToken      = "LEASEHOLD_TOKEN"
	envRange      = "LEASEHOLD_RANGE" // first-last, 16 hexadecimal digits each, both included
	envTTL        = "LEASEHOLD_TTL"   // with a unit, such as 10s
	envTTLMs      = "LEASEHOLD_TTL_MS"
	envOwner      = "LEASEHOLD_OWNER"  // worker id
	envSocket     = "LEASEHOLD_SOCKET" // per-worker mode only
)

// spaceEnv describes the keyspace.
func (s *sidecar) spaceEnv(ttl time.Duration) []string {
	return []string{
		envKeyspace + "=" + s.cfg.Keyspace.Name,
		envPartitions + "=" + strconv.FormatUint(uint64(s.cfg.Keyspace.Partitions), 10),
		envTTL + "=" + ttl.String(),
		envTTLMs + "=" + strconv.FormatInt(ttl.Milliseconds(), 10),
		envOwner + "=" + s.cfg.Worker.ID,
	}
}

// leaseEnv describes a lease and its keyspace.
func (s *sidecar) leaseEnv(l *worker.Lease, ttl time.Duration) []string {
	return append(s.spaceEnv(ttl),
		envPartition+"="+strconv.FormatUint(uint64(l.Partition()), 10),
		envToken+"="+l.Token().String(),
		envRange+"="+rangeText(l),
	)
}

// rangeText is the share of hashes as the other commands show it.
func rangeText(l *worker.Lease) string {
	first, last := l.Range()
	return fmt.Sprintf("%016x-%016x", first, last)
}

// withEnv puts variables into an environment, each once.
func withEnv(base []string, set ...string) []string {
	names := make(map[string]bool, len(set))
	for _, v := range set {
		name, _, _ := strings.Cut(v, "=")
		names[name] = true
	}
	out := make([]string, 0, len(base)+len(set))
	for _, v := range base {
		if name, _, _ := strings.Cut(v, "="); !names[name] {
			out = append(out, v)
		}
	}
	return append(out, set...)
}

// own are all variables that this package sets: what a sidecar inherited from
// another one must not be taken for its own.
var own = []string{envKeyspace, envPartitions, envPartition, envToken, envRange, envTTL, envTTLMs, envOwner, envSocket, childMark, envLockKey, envLockRevision, envSession}

// secret is what none of our variables has on purpose: a credential, a private key,
// a key of gossip.
var secret = regexp.MustCompile(`lhc_|PRIVATE KEY|^\s*([A-Za-z0-9+/]{43}=|[A-Za-z0-9+/]{22}==)\s*$`)

// inherited is what a command gets of a sidecar's environment. It may call the
// servers as the sidecar does, for which it gets the names of files; a secret that
// somebody has put into one of our variables by mistake goes no further.
func inherited(base []string) []string {
	return slices.DeleteFunc(without(base, own), func(v string) bool {
		name, value, _ := strings.Cut(v, "=")
		return strings.HasPrefix(name, "LEASEHOLD_") && secret.MatchString(value)
	})
}

// without takes variables out of an environment.
func without(base []string, names []string) []string {
	var out []string
next:
	for _, v := range base {
		for _, name := range names {
			if _, ok := cutEnv(v, name); ok {
				continue next
			}
		}
		out = append(out, v)
	}
	return out
}

// cutEnv returns the value of NAME=value if the name is the one.
func cutEnv(v, name string) (string, bool) { return strings.CutPrefix(v, name+"=") }
