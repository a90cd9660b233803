package worker

import (
	"maps"
	"slices"

	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
)

// Bounds of one release message.
const (
	maxReleaseRefs = 4096
	maxErrorText   = 256
)

// ref names one lease.
type ref struct {
	keyspace, partition uint32
	token               uint64
}

// releaseKey is what leases must share to go back in one message.
type releaseKey struct {
	cause leaseholdv1.ReleaseCause
	text  string
}

// release gives a lease back. It is sent at the end of the step, and again on
// every new stream until the servers have confirmed it.
func (c *core) release(l *Lease, cause leaseholdv1.ReleaseCause, text string) {
	c.giveUp(l)
	c.releaseRef(ref{l.space.id, l.partition, uint64(l.token)}, cause, text)
}

func (c *core) releaseRef(r ref, cause leaseholdv1.ReleaseCause, text string) {
	if _, ok := c.asked[r]; ok || !c.session.opened {
		return
	}
	c.asked[r] = struct{}{}
	if len(text) > maxErrorText {
		text = text[:maxErrorText]
	}
	key := releaseKey{cause, text}
	if _, ok := c.rel[key]; !ok {
		c.relKeys = append(c.relKeys, key)
	}
	c.rel[key] = append(c.rel[key], &leaseholdv1.LeaseRef{KeyspaceId: r.keyspace, Partition: r.partition, Token: r.token})
}

// flushReleases turns what the step gathered into messages.
func (c *core) flushReleases() {
	for _, key := range c.relKeys {
		for refs := range slices.Chunk(c.rel[key], maxReleaseRefs) {
			c.request++
			m := &leaseholdv1.ReleaseLeases{Request: c.request, Leases: refs, Cause: key.cause, Error: key.text}
			c.pending[c.request] = m
			c.send(&leaseholdv1.AttachRequest{Request: &leaseholdv1.AttachRequest_Release{Release: m}})
		}
		delete(c.rel, key)
	}
	c.relKeys = c.relKeys[:0]
}

// released takes a confirmation. Leases that were not held any more are as well
// given back as the others.
func (c *core) released(m *leaseholdv1.LeasesReleased) {
	for _, r := range c.pending[m.GetRequest()].GetLeases() {
		delete(c.asked, ref{r.GetKeyspaceId(), r.GetPartition(), r.GetToken()})
	}
	delete(c.pending, m.GetRequest())
}

func sortedRequests(m map[uint64]*leaseholdv1.ReleaseLeases) []uint64 {
	return slices.Sorted(maps.Keys(m))
}

func sortedRuns(m map[string]*run) []*run {
	out := make([]*run, 0, len(m))
	for _, name := range slices.Sorted(maps.Keys(m)) {
		out = append(out, m[name])
	}
	return out
}
