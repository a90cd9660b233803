package doctor

import (
	"fmt"
	"strings"
	"time"

	pb "github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
)

// From when on the key store is used for what it is not made for.
const (
	// keysLevel is the feature level from which on there are keys.
	keysLevel = 2
	// heavyMean: keys of a coordination store are addresses, flags and settings.
	// With a mean above this the state is data, and every server holds all of it
	// in memory, and writes all of it with each snapshot.
	heavyMean = 16 << 10
	// heavyValue is what one entry of the log holds: a larger value has an entry,
	// and a sync, of its own, and the keep-alives of all sessions wait behind it.
	heavyValue = 256 << 10
	// heavyWrites a second, for as long as the two looks are apart: at that rate
	// the default history of a million revisions lasts 17 minutes, less than the
	// hour for which the default promises that a watch can be resumed.
	heavyWrites = 1000.0
	// fullShare of the quota: room for as much again as there is.
	fullShare = 0.5
	// direShare of the quota: the alarm is near.
	direShare = 0.9
	// laggingHistory is how many times the configured history there may be. The
	// leader compacts every few seconds at this rate, so twice is no chance.
	laggingHistory = 2
	// endlessHistory is from how many revisions on it is said that none is forgotten.
	endlessHistory = 1_000_000
)

// keys finds what is wrong with the key store, and what wears it out. The state
// is the same on all servers, so the one that is furthest on tells.
func (e *exam) keys() {
	e.keysOff()
	var at *Server
	for _, s := range e.up() {
		if k := s.health().GetKeys(); k != nil && (at == nil || k.GetRevision() > at.health().GetKeys().GetRevision()) {
			at = s
		}
	}
	if at == nil {
		return
	}
	k := at.health().GetKeys()
	e.keySpace(k)
	e.keyValues(k)
	e.keyWrites()
	e.keyHistory(k)
}

// keysOff finds a cluster whose level keeps its key store shut.
func (e *exam) keysOff() {
	level, known := uint32(0), false
	var old []string
	for _, s := range e.up() {
		level = max(level, s.Second.Status.GetFeatureLevel())
		switch n := maxFeature(s); {
		case n >= keysLevel:
			known = true
		case n > 0:
			old = append(old, s.name())
		}
	}
	if !known || level == 0 || level >= keysLevel || len(old) == 0 {
		return
	}
	e.find(&pb.Finding{
		Severity: Warning, Code: "keys_off", Subject: "cluster",
		What:     "keys, locks and elections are refused",
		Evidence: fmt.Sprintf("they need feature level %d, the cluster is at %d; %s do not know it", keysLevel, level, strings.Join(old, ", ")),
		Why:      "a server that does not know them would stop at the first one in the log",
		Next:     "upgrade them: deploy/OPERATIONS.md, upgrade; the leader raises the level once it has seen all servers",
	})
}

// keySpace finds the alarm of no space, or that it is near.
func (e *exam) keySpace(k *pb.KeyFigures) {
	used, quota := uint64(max(k.GetBytes(), 0)), uint64(max(k.GetQuotaBytes(), 0))
	evidence := fmt.Sprintf("%d keys and their history take %s", k.GetKeys(), size(used))
	if quota > 0 {
		evidence += fmt.Sprintf(" of the quota of %s (%.0f %%)", size(quota), 100*float64(used)/float64(quota))
	}
	const next = "delete what is not needed, and shorten --compact-age; deploy/COORDINATION.md, limits"
	switch {
	case k.GetNoSpace():
		e.find(&pb.Finding{
			Severity: Critical, Code: "keys_no_space", Subject: "keys",
			What: "the alarm is raised that no space is left for keys", Evidence: evidence,
			Why:  "puts, new sessions, locks and elections are refused until it is disarmed; deletes and releases work",
			Next: "delete keys, let go of their history (leasehold kv compact), lower the alarm (leasehold kv disarm): deploy/COORDINATION.md, limits",
		})
	case quota == 0:
	case float64(used) > direShare*float64(quota):
		e.find(&pb.Finding{
			Severity: Critical, Code: "keys_filling", Subject: "keys",
			What: "the key store is nearly full", Evidence: evidence,
			Why: "at the quota puts, new sessions, locks and elections are refused", Next: next,
		})
	case float64(used) > fullShare*float64(quota):
		e.find(&pb.Finding{
			Severity: Warning, Code: "keys_filling", Subject: "keys",
			What: "the key store fills up", Evidence: evidence,
			Why: "every server holds all of it in memory, and at the quota puts are refused", Next: next,
		})
	}
}

// keyValues finds values that belong elsewhere.
func (e *exam) keyValues(k *pb.KeyFigures) {
	f := &pb.Finding{
		Severity: Warning, Code: "keys_heavy_values", Subject: "keys",
		Evidence: fmt.Sprintf("the largest value has %s, the mean is %s", size(uint64(k.GetValueBytesMax())), size(uint64(k.GetValueBytesMean()))),
		Why:      "keep-alives, grants and locks go through the same log and wait behind them",
		Next:     "keep the data in an object store or a database, and its address or version in the key",
	}
	switch {
	case k.GetValueBytesMean() > heavyMean:
		f.What = "values are large for a coordination store"
	case k.GetValueBytesMax() > heavyValue:
		f.What = "a value is too large to share an entry of the log"
	default:
		return
	}
	e.find(f)
}

// keyWrites finds a rate of writes that is a database's.
func (e *exam) keyWrites() {
	fastest := 0.0
	for _, s := range e.up() {
		a, b := s.First.Health, s.Second.Health
		passed := time.Duration(b.GetBootClockNs() - a.GetBootClockNs())
		if a.GetKeys() == nil || b.GetKeys() == nil || a.GetBoot() != b.GetBoot() || passed <= 0 || b.GetKeys().GetCompactedRevision() > a.GetKeys().GetRevision() {
			continue // a restore has raised the revision
		}
		fastest = max(fastest, float64(b.GetKeys().GetRevision()-a.GetKeys().GetRevision())/passed.Seconds())
	}
	if fastest <= heavyWrites {
		return
	}
	e.find(&pb.Finding{
		Severity: Warning, Code: "keys_heavy_writes", Subject: "keys",
		What:     "keys are written at the rate of a database",
		Evidence: fmt.Sprintf("%.0f revisions a second in %v", fastest, e.Apart.Round(time.Millisecond)),
		Why:      "each is synced on every server and kept as history: watches that are away for minutes cannot be resumed",
		Next:     "leasehold doctor --duration 1m, to see whether it stays; leasehold kv watch '' --prefix, to see what it is",
	})
}

// keyHistory finds compaction that does not come, or was switched off.
func (e *exam) keyHistory(k *pb.KeyFigures) {
	kept := k.GetRevision() - k.GetCompactedRevision()
	f := &pb.Finding{
		Severity: Warning, Code: "keys_history", Subject: "keys",
		Why: "each kept version takes memory on every server, until the quota is reached",
	}
	switch most := k.GetCompactRevisions(); {
	case most > 0 && kept > laggingHistory*most:
		f.What, f.Evidence = "compaction of keys lags behind", fmt.Sprintf("%d revisions are kept, %d are configured", kept, most)
		f.Next = "look for errors about compaction in the leader's log; leasehold raft peers says who leads"
	case most == 0 && k.GetCompactAgeMs() == 0 && kept > endlessHistory:
		f.What, f.Evidence = "no history of keys is ever forgotten", fmt.Sprintf("%d revisions are kept, and neither --compact-age nor --compact-revisions is set", kept)
		f.Next = "set --compact-age on the servers, or: etcdctl compaction REVISION"
	default:
		return
	}
	e.find(f)
}
