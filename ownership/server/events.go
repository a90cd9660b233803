package server

import (
	"sync/atomic"

	"github.com/leasehold-dev/leasehold/metrics"
	"github.com/leasehold-dev/leasehold/ownership/audit"
	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// eventCounter counts and audits what the log says, on every server alike. It is
// used by the applying goroutine only.
type eventCounter struct {
	m     *metrics.Server
	audit *audit.Auditor
	// found is the newest finding that nobody has logged: the applying goroutine
	// does not wait for a log.
	found *atomic.Pointer[audit.Finding]
	// known is the end of the log when this process opened it. What it applies
	// again up to there has been counted by the process before: counters must not
	// rise by what is old. It is audited again.
	known uint64
	// revoked is told, at once and without waiting, of each credential that was.
	revoked func(id string)
	buf     []state.Event
}

// eventChunk bounds the copy that one look at the ledger makes.
const eventChunk = 4096

func (c *eventCounter) count(st *state.State, from, to, index uint64) {
	audits := c.audit.At(from)
	for from < to {
		var err error
		c.buf, err = st.Events(from, eventChunk, c.buf[:0])
		if err != nil || len(c.buf) == 0 {
			audits = false
			break // more in one entry than the ledger keeps: not counted
		}
		if audits {
			c.audit.Read(c.buf)
		}
		if index > c.known {
			c.tally(st)
		}
		for i := range c.buf {
			if e := &c.buf[i]; e.Kind == state.KindCredentialRevoke {
				c.revoked(e.From)
			}
		}
		from = c.buf[len(c.buf)-1].Revision
	}
	if !audits { // what came before was in a snapshot
		c.audit.Restart(st)
	}
	counts, found := c.audit.Take()
	c.m.Audited(metrics.Audit{
		Checked: counts.Checked, Overlaps: counts.Overlaps, Regressions: counts.Regressions,
		Unmatched: counts.Unmatched, Restarts: counts.Restarts,
	})
	if found != nil {
		c.found.Store(found)
	}
}

// tally adds up runs of grants, since a plan makes thousands in a row.
func (c *eventCounter) tally(st *state.State) {
	var keyspace state.KeyspaceID
	granted := 0
	flush := func() {
		if k, ok := st.Keyspace(keyspace); ok && granted > 0 {
			c.m.Granted(k.Name, granted)
		}
		granted = 0
	}
	for i := range c.buf {
		switch e := &c.buf[i]; e.Kind {
		case state.KindGrant:
			if e.Keyspace != keyspace {
				flush()
				keyspace = e.Keyspace
			}
			granted++
		case state.KindSessionOpen:
			c.m.SessionOpened()
		case state.KindSessionExpire:
			c.m.SessionExpired("ttl")
		case state.KindSessionBar:
			c.m.SessionExpired(e.Cause.String())
		}
	}
	flush()
}
