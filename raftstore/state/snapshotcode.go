package state

// The codes below are the fields of snapshot format version 1, in order.

const (
	leaseRowSize = 5  // least bytes of an encoded leaseRow
	eventSize    = 11 // least bytes of an encoded Event
)

func (s *State) codeMeta(c *coder) {
	text(c, &s.clusterID)
	number(c, &s.index)
	number(c, &s.term)
	signed(c, &s.clock)
	number(c, &s.clockTerm)
	signed(c, &s.nextSweep)
	number(c, &s.lastToken)
	number(c, &s.ledger.first)
	text(c, &s.leader)
	number(c, &s.leaderTerm)
	number(c, &s.lastKeyspace)
}

func (s *State) codeCluster(c *coder) {
	number(c, &s.feature)
	signed(c, &s.strictAt)
}

func codeWorker(c *coder, p **Worker) {
	w := *p
	if c.reading {
		w = new(Worker)
		*p = w
	}
	text(c, &w.ID)
	number(c, &w.Incarnation)
	number(c, &w.Session)
	c.flag(&w.Drained)
	list(c, &w.Opens, 1, signed[Clock])
	signed(c, &w.seen)
	count(c, &w.sessions)
}

func codeSession(c *coder, p **Session) {
	x := *p
	if c.reading {
		x = new(Session)
		*p = x
	}
	fixed(c, &x.ID)
	text(c, &x.Worker)
	number(c, &x.Incarnation)
	number(c, &x.State)
	c.flag(&x.Restart)
	signed(c, &x.TTL)
	list(c, &x.Keyspaces, 1, number[KeyspaceID])
	list(c, &x.held, 3, func(c *coder, h *held) {
		position(c, &h.head)
		position(c, &h.tail)
		number(c, &h.count)
	})
	text(c, &x.Endpoint)
	text(c, &x.Zone)
	text(c, &x.Addr)
	number(c, &x.Capacity)
	c.labels(&x.Labels)
	c.flag(&x.Gossip)
	signed(c, &x.Opened)
	number(c, &x.Renewal)
	signed(c, &x.Deadline)
	signed(c, &x.renewed)
	c.flag(&x.fresh)
	count(c, &x.Held)
}

// position codes a partition or none.
func position(c *coder, p *uint32) {
	v := *p + 1
	if number(c, &v); c.reading {
		*p = v - 1
	}
}

func (k *Keyspace) code(c *coder) {
	number(c, &k.ID)
	text(c, &k.Name)
	number(c, &k.Partitions)
	k.Settings.code(c)
	c.flag(&k.Deleting)
	signed(c, &k.CreatedAt)
	signed(c, &k.LastJoin)
	k.codeMoves(c)
	list(c, &k.slots, 6, codeSlot)
	k.codeSuspects(c)
}

func (k *Keyspace) codeMoves(c *coder) {
	n := c.length(len(k.moves), 14)
	if c.reading {
		k.moves = make(map[uint32]Move, n)
		for range n {
			var m Move
			if m.code(c); c.err != nil {
				return
			}
			k.moves[m.Partition] = m
		}
		return
	}
	for _, p := range sortedKeys(k.moves) {
		m := k.moves[p]
		m.code(c)
	}
}

func (m *Move) code(c *coder) {
	number(c, &m.Partition)
	number(c, &m.Token)
	fixed(c, &m.Target)
	c.flag(&m.Reserve)
	signed(c, &m.Deadline)
	signed(c, &m.Started)
	number(c, &m.Cause)
}

func codeSlot(c *coder, p **slot) {
	t := *p
	if c.reading {
		t = new(slot)
		*p = t
	}
	text(c, &t.worker)
	text(c, &t.zone)
	number(c, &t.session)
	c.flag(&t.reserved)
	signed(c, &t.until)
	var last uint32
	list(c, &t.parts, 1, func(c *coder, p *uint32) { delta(c, p, &last) })
}

func (k *Keyspace) codeSuspects(c *coder) {
	n := c.length(len(k.suspects), 6)
	if c.reading {
		k.suspects = make(map[uint32]*suspect, n)
		for range n {
			var p uint32
			t := new(suspect)
			number(c, &p)
			if t.code(c); c.err != nil {
				return
			}
			k.suspects[p] = t
		}
		return
	}
	for _, p := range sortedKeys(k.suspects) {
		number(c, &p)
		k.suspects[p].code(c)
	}
}

func (t *suspect) code(c *coder) {
	list(c, &t.workers, 1, text[string])
	number(c, &t.blame)
	signed(c, &t.retryAt)
	c.flag(&t.quarantined)
	text(c, &t.lastError)
}

// leaseRow is one partition as it is written: the holder as the position of
// its session, the link as the next partition of the same session or, without
// a holder, as the position of the previous owner's name; 0 for none.
type leaseRow struct {
	token  Token
	holder uint32
	link   uint32
	since  uint32
	flags  uint8
}

func (r *leaseRow) code(c *coder, last *leaseRow) {
	delta(c, &r.token, &last.token)
	delta(c, &r.holder, &last.holder)
	delta(c, &r.link, &last.link)
	delta(c, &r.since, &last.since)
	number(c, &r.flags)
}

// codeEvent leaves the revision out: it follows from the position.
func codeEvent(c *coder, e, last *Event) {
	delta(c, &e.Index, &last.Index)
	wall, before := uint64(e.Wall), uint64(last.Wall)
	if delta(c, &wall, &before); c.reading {
		e.Wall = int64(wall)
	}
	last.Wall = e.Wall
	delta(c, &e.Token, &last.Token)
	number(c, &e.Session)
	text(c, &e.Worker)
	text(c, &e.From)
	number(c, &e.Keyspace)
	delta(c, &e.Partition, &last.Partition)
	number(c, &e.Kind)
	number(c, &e.Cause)
	number(c, &e.Target)
}
