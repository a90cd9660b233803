package state

import "time"

// none ends a linked list of partitions.
const none = ^uint32(0)

// flagDraining marks a lease whose holder has been asked to finish; there is
// one entry in moves for each.
const flagDraining uint8 = 1

// leaseTable has the present state of every partition of a keyspace, dense
// and without pointers: 25 bytes a partition, nothing for a collector to
// trace, nothing to allocate when leases come and go.
type leaseTable struct {
	token  []Token  // last granted, 0: never
	holder []uint32 // seat of the session, 0: unowned
	// next and prev link the partitions of one session. Where there is no
	// owner, next is instead the previous owner's number in the name table.
	next  []uint32
	prev  []uint32
	since []uint32 // last change of owner, seconds of the logical clock
	flags []uint8
}

func newLeaseTable(partitions uint32) leaseTable {
	return leaseTable{
		token:  make([]Token, partitions),
		holder: make([]uint32, partitions),
		next:   make([]uint32, partitions),
		prev:   make([]uint32, partitions),
		since:  make([]uint32, partitions),
		flags:  make([]uint8, partitions),
	}
}

// Lease is the present state of one partition.
type Lease struct {
	Token    Token     // of the last grant; 0: never granted
	Session  SessionID // 0: unowned
	Draining bool
	Since    Clock // last change of owner, to the second
}

// Lease returns the state of partition p, which must be below Partitions.
func (k *Keyspace) Lease(p uint32) Lease {
	l := Lease{
		Token:    k.token[p],
		Draining: k.flags[p]&flagDraining != 0,
		Since:    Clock(k.since[p]) * time.Second,
	}
	if seat := k.holder[p]; seat != 0 {
		l.Session = k.state.seats[seat].ID
	}
	return l
}

// Previous returns the worker id that last owned partition p, while nobody
// does; otherwise, and when nobody ever did, "".
func (k *Keyspace) Previous(p uint32) string {
	if k.holder[p] != 0 {
		return ""
	}
	return k.state.owners.names[k.next[p]]
}

// owner is the session that holds p, or nil.
func (k *Keyspace) owner(p uint32) *Session { return k.state.seats[k.holder[p]] }

// assign makes x the owner of p with a new token and links p at the end of
// the i-th list of x. The partition must be unowned.
func (s *State) assign(k *Keyspace, p uint32, x *Session, i int, token Token, cause Cause) {
	from := s.owners.drop(k.next[p])
	h := &x.held[i]
	k.token[p], k.holder[p] = token, x.seat
	k.next[p], k.prev[p] = none, h.tail
	k.since[p], k.flags[p] = s.seconds(), 0
	if h.tail == none {
		h.head = p
	} else {
		k.next[h.tail] = p
	}
	h.tail = p
	h.count++
	x.Held++
	k.Owned++
	if k.quarantined(p) {
		k.Quarantined--
	}
	s.emitLease(KindGrant, k, p, x, cause).From = from
}

// unassign unlinks p from the i-th list of its owner x and ends a drain. The
// token stays, as the condition of the next grant.
func (s *State) unassign(k *Keyspace, p uint32, x *Session, i int) {
	h := &x.held[i]
	next, prev := k.next[p], k.prev[p]
	if prev == none {
		h.head = next
	} else {
		k.next[prev] = next
	}
	if next == none {
		h.tail = prev
	} else {
		k.prev[next] = prev
	}
	h.count--
	x.Held--
	k.Owned--
	if k.flags[p]&flagDraining != 0 {
		delete(k.moves, p)
		k.Draining--
	}
	if k.quarantined(p) {
		k.Quarantined++
	}
	k.holder[p], k.flags[p] = 0, 0
	k.next[p], k.prev[p] = s.owners.hold(x.Worker), none
	k.since[p] = s.seconds()
}

// grow makes room for n more partitions of a table that is being read, ahead
// of need by no more than has already come, and never beyond Partitions.
func (k *Keyspace) grow(n int) {
	have := len(k.token)
	if cap(k.token) >= have+n {
		return
	}
	size := max(have+n, min(2*have, int(k.Partitions)))
	t := newLeaseTable(uint32(size))
	copy(t.token, k.token)
	copy(t.holder, k.holder)
	copy(t.next, k.next)
	copy(t.prev, k.prev)
	copy(t.since, k.since)
	copy(t.flags, k.flags)
	k.leaseTable = leaseTable{t.token[:have], t.holder[:have], t.next[:have], t.prev[:have], t.since[:have], t.flags[:have]}
}

// add appends a partition that was read; see grow.
func (k *Keyspace) add(row leaseRow) {
	k.token = append(k.token, row.token)
	k.holder = append(k.holder, row.holder)
	k.next = append(k.next, row.link)
	prev := none
	if row.holder != 0 {
		prev = unlinked
	}
	k.prev = append(k.prev, prev)
	k.since = append(k.since, row.since)
	k.flags = append(k.flags, row.flags)
}
