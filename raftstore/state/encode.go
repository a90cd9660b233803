package state

import (
	"encoding/binary"
	"fmt"
	"time"
)

// A batch in the log:
//
//	version   1 byte, batchVersion
//	flags     1 byte, 1: every command has a request id
//	wall      zigzag varint, Unix milliseconds
//	n         varint, number of commands
//	n times:
//	  number  varint, with the bit mayIgnore where it is set
//	  request 8 bytes, if flagged
//	  length  4 bytes, little-endian: of the body
//	  body    the fields in order, see code
//
// A field is never added to a command: that takes a new command, or a new
// version.
const (
	batchVersion   = 1
	batchRequests  = 1 << 0
	maxCommandBody = 1<<32 - 1
)

// AppendBatch appends the encoding of a batch, version byte first. It fails
// on a command that is nil and on Requests of another length than Commands.
func AppendBatch(dst []byte, b *Batch) ([]byte, error) {
	var flags uint8
	if b.Requests != nil {
		if len(b.Requests) != len(b.Commands) {
			return dst, fmt.Errorf("encode batch: %d request ids for %d commands", len(b.Requests), len(b.Commands))
		}
		flags |= batchRequests
	}
	c := coder{buf: append(dst, batchVersion, flags)}
	wall := b.Wall.UnixMilli()
	c.varint(&wall)
	c.length(len(b.Commands), 1)
	for i, cmd := range b.Commands {
		if cmd == nil {
			return dst, fmt.Errorf("encode batch: command %d is nil", i)
		}
		n := cmd.number()
		number(&c, &n)
		if b.Requests != nil {
			fixed(&c, &b.Requests[i])
		}
		at := len(c.buf)
		c.buf = append(c.buf, 0, 0, 0, 0)
		if cmd.code(&c); c.err != nil {
			return dst, fmt.Errorf("encode batch: command %d: %w", i, c.err)
		}
		size := len(c.buf) - at - 4
		if size > maxCommandBody {
			return dst, fmt.Errorf("encode batch: command %d is too long: %d bytes", i, size)
		}
		binary.LittleEndian.PutUint32(c.buf[at:], uint32(size))
	}
	return c.buf, nil
}

func (b *Bootstrap) code(c *coder) {
	text(c, &b.ClusterID)
	number(c, &b.FirstToken)
}

func (a *Announce) code(c *coder) {
	number(c, &a.Term)
	a.Server.code(c)
}

func (v *Server) code(c *coder) {
	text(c, &v.ID)
	text(c, &v.RaftAddr)
	text(c, &v.GRPCAddr)
	text(c, &v.HTTPAddr)
	text(c, &v.GossipAddr)
	text(c, &v.Version)
}

func (t *Tick) code(c *coder) {
	number(c, &t.Term)
	signed(c, &t.Elapsed)
}

func (k *KeepAlive) code(c *coder) {
	number(c, &k.Term)
	signed(c, &k.Elapsed)
	list(c, &k.Sessions, 8, fixed[SessionID])
}

func (e *Expire) code(c *coder) {
	number(c, &e.Term)
	signed(c, &e.Elapsed)
	list(c, &e.Sessions, 9, func(c *coder, x *Expiry) {
		fixed(c, &x.Session)
		number(c, &x.Renewal)
	})
}

func (o *OpenSession) code(c *coder) {
	fixed(c, &o.Session)
	text(c, &o.Worker)
	number(c, &o.Incarnation)
	list(c, &o.Keyspaces, 1, text[string])
	text(c, &o.Endpoint)
	text(c, &o.Zone)
	text(c, &o.Addr)
	number(c, &o.Capacity)
	c.labels(&o.Labels)
	c.flag(&o.Gossip)
	codeOwner(c, &o.Owner)
}

func (j *JoinKeyspace) code(c *coder) {
	fixed(c, &j.Session)
	text(c, &j.Keyspace)
}

func (l *LeaveSession) code(c *coder) {
	fixed(c, &l.Session)
	c.flag(&l.Restart)
}

func (s *CloseSession) code(c *coder) { fixed(c, &s.Session) }

func (t *Settings) code(c *coder) {
	signed(c, &t.TTL)
	number(c, &t.Takeover)
	signed(c, &t.HandoffTimeout)
	signed(c, &t.RestartGrace)
	signed(c, &t.InitialDelay)
}

func (k *CreateKeyspace) code(c *coder) {
	text(c, &k.Name)
	number(c, &k.Partitions)
	k.Settings.code(c)
}

func (k *UpdateKeyspace) code(c *coder) {
	text(c, &k.Name)
	k.Settings.code(c)
}

func (k *DeleteKeyspace) code(c *coder) { text(c, &k.Name) }

// code writes a grant's items in columns of differences: partitions and last
// tokens of a plan mostly run on, and its sessions are few.
func (g *Grant) code(c *coder) {
	number(c, &g.Term)
	number(c, &g.Keyspace)
	number(c, &g.Cause)
	sessions := sessionTable{}
	for i := range g.Items {
		sessions.add(g.Items[i].Session)
	}
	sessions.code(c)
	var part uint32
	var token Token
	list(c, &g.Items, 3, func(c *coder, it *GrantItem) {
		delta(c, &it.Partition, &part)
		delta(c, &it.LastToken, &token)
		sessions.ref(c, &it.Session)
	})
}

func (r *Release) code(c *coder) {
	fixed(c, &r.Session)
	number(c, &r.Cause)
	text(c, &r.Error)
	var ks KeyspaceID
	var part uint32
	var token Token
	list(c, &r.Items, 3, func(c *coder, it *LeaseRef) {
		delta(c, &it.Keyspace, &ks)
		delta(c, &it.Partition, &part)
		delta(c, &it.Token, &token)
	})
}

func (d *Drain) code(c *coder) {
	number(c, &d.Term)
	number(c, &d.Keyspace)
	signed(c, &d.Timeout)
	number(c, &d.Cause)
	sessions := sessionTable{}
	for i := range d.Items {
		sessions.add(d.Items[i].Target)
	}
	sessions.code(c)
	var part uint32
	var token Token
	list(c, &d.Items, 4, func(c *coder, it *DrainItem) {
		delta(c, &it.Partition, &part)
		delta(c, &it.Token, &token)
		sessions.ref(c, &it.Target)
		c.flag(&it.Reserve)
	})
}

func (r *Revoke) code(c *coder) {
	number(c, &r.Term)
	number(c, &r.Keyspace)
	number(c, &r.Cause)
	sessions := sessionTable{}
	for i := range r.Items {
		sessions.add(r.Items[i].Session)
	}
	sessions.code(c)
	var part uint32
	var token Token
	list(c, &r.Items, 3, func(c *coder, it *RevokeItem) {
		delta(c, &it.Partition, &part)
		sessions.ref(c, &it.Session)
		delta(c, &it.Token, &token)
	})
}

func (b *BarWorker) code(c *coder) {
	text(c, &b.Worker)
	c.flag(&b.Drained)
}

func (e *Evict) code(c *coder) { text(c, &e.Worker) }

func (r *Retry) code(c *coder) {
	number(c, &r.Keyspace)
	number(c, &r.Partition)
}

func (r *RaiseToken) code(c *coder) { number(c, &r.Token) }

func (r *RaiseFeature) code(c *coder) {
	number(c, &r.Term)
	number(c, &r.Level)
}

// sessionTable writes each session of a command once; items refer to it.
type sessionTable struct {
	ids   []SessionID
	index map[SessionID]uint32
}

func (t *sessionTable) add(id SessionID) {
	if _, ok := t.index[id]; ok {
		return
	}
	if t.index == nil {
		t.index = make(map[SessionID]uint32)
	}
	t.index[id] = uint32(len(t.ids))
	t.ids = append(t.ids, id)
}

func (t *sessionTable) code(c *coder) { list(c, &t.ids, 8, fixed[SessionID]) }

func (t *sessionTable) ref(c *coder, id *SessionID) {
	i := t.index[*id]
	number(c, &i)
	if !c.reading {
		return
	}
	if int(i) >= len(t.ids) {
		c.fail("session out of range")
		return
	}
	*id = t.ids[i]
}

func fromMillis(ms int64) time.Time { return time.UnixMilli(ms).UTC() }
