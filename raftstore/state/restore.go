package state

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/leasehold-dev/leasehold/raftstore/mvcc"
)

// ErrDamaged is in the chain of every error of Restore about what was read,
// other than a *VersionError: the snapshot is cut off, altered or not one.
var ErrDamaged = errors.New("snapshot is damaged")

// unlinked marks an owned partition that no session's list has reached yet.
const unlinked = none - 1

// Restore reads what Write wrote and checks sum and invariants. It reads no
// byte beyond the end, never panics, and allocates no more than a small
// multiple of what it reads.
func Restore(r io.Reader) (*State, error) {
	in := restorer{r: r, s: New(), intern: make(map[string]string)}
	if err := in.run(); err != nil {
		return nil, fmt.Errorf("restore snapshot: %w", err)
	}
	return in.s, nil
}

type restorer struct {
	r         io.Reader
	sum       uint32
	s         *State
	buf       bytes.Buffer
	names     []string
	nameID    []uint32 // position in names -> number in the name table
	last      uint8    // kind of the frame before
	keys      *mvcc.Loader
	lastLease SessionID // of those without a worker
	lastOwned SessionID // of those with an owner
	intern    map[string]string
}

func damaged(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrDamaged, fmt.Sprintf(format, args...))
}

func (in *restorer) run() error {
	head := make([]byte, len(snapshotMagic)+1)
	if err := in.read(head); err != nil {
		return err
	}
	if string(head[:len(snapshotMagic)]) != snapshotMagic {
		return damaged("not a snapshot")
	}
	if v := head[len(snapshotMagic)]; v != snapshotVersion {
		return &VersionError{What: "snapshot", Got: uint64(v), Max: snapshotVersion}
	}
	for {
		end, err := in.frame()
		if err != nil {
			return err
		}
		if end {
			return in.finish()
		}
	}
}

// read fills b and adds it to the sum.
func (in *restorer) read(b []byte) error {
	if _, err := io.ReadFull(in.r, b); err != nil {
		return in.readError(err)
	}
	in.sum = crc32.Update(in.sum, castagnoli, b)
	return nil
}

func (in *restorer) readError(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return damaged("cut off")
	}
	return fmt.Errorf("read: %w", err)
}

// frame reads one frame and says whether it was the last.
func (in *restorer) frame() (end bool, err error) {
	var head [frameHeader]byte
	if err := in.read(head[:]); err != nil {
		return false, err
	}
	kind, size, sum := head[0], binary.LittleEndian.Uint32(head[1:]), in.sum
	// The buffer grows with what has arrived, not with what is announced.
	in.buf.Reset()
	if _, err := io.CopyN(&in.buf, in.r, int64(size)); err != nil {
		return false, in.readError(err)
	}
	in.sum = crc32.Update(in.sum, castagnoli, in.buf.Bytes())
	if kind == frameEnd {
		if size != 4 || binary.LittleEndian.Uint32(in.buf.Bytes()) != sum {
			return false, damaged("checksum differs")
		}
		return true, nil
	}
	if kind&frameMayIgnore != 0 {
		return false, nil
	}
	if in.last == 0 && kind != frameMeta || kind < in.last {
		return false, damaged("frame %d after %d", kind, in.last)
	}
	in.last = kind
	c := coder{buf: in.buf.Bytes(), reading: true}
	if err := in.decode(kind, &c); err != nil {
		return false, err
	}
	if err := c.done(); err != nil {
		return false, damaged("frame %d: %v", kind, err)
	}
	return false, nil
}

func (in *restorer) decode(kind uint8, c *coder) error {
	s := in.s
	switch kind {
	case frameMeta:
		s.codeMeta(c)
	case frameServers:
		list(c, &s.servers, 6, func(c *coder, v *Server) { v.code(c) })
	case frameWorkers:
		var part []*Worker
		list(c, &part, 7, codeWorker)
		return in.workers(c, part)
	case frameNames:
		var part []string
		list(c, &part, 1, text[string])
		in.names = append(in.names, part...)
		in.nameID = append(in.nameID, make([]uint32, len(part))...)
	case frameKeyspace:
		return in.keyspace(c)
	case frameSessions:
		var part []*Session
		list(c, &part, 25, codeSession)
		return in.sessions(c, part)
	case frameLeases:
		return in.leases(c)
	case frameRequests:
		var ids []uint64
		list(c, &ids, 8, fixed[uint64])
		for _, id := range ids {
			if id == 0 || !s.requests.add(id) {
				return damaged("request id %d comes twice", id)
			}
		}
	case frameEvents:
		in.events(c)
	case frameCluster:
		s.codeCluster(c)
	default:
		return in.decodeKeys(kind, c)
	}
	return nil
}

func (in *restorer) workers(c *coder, part []*Worker) error {
	if c.err != nil {
		return nil
	}
	for _, w := range part {
		n := len(in.s.workerOrder)
		if n > 0 && in.s.workerOrder[n-1].ID >= w.ID {
			return damaged("worker %q is out of order", w.ID)
		}
		in.s.workers[w.ID] = w
		in.s.workerOrder = append(in.s.workerOrder, w)
	}
	return nil
}

func (in *restorer) keyspace(c *coder) error {
	k := new(Keyspace)
	k.code(c)
	if c.err != nil {
		return nil
	}
	s := in.s
	n := len(s.keyspaceOrder)
	if n > 0 && s.keyspaceOrder[n-1].ID >= k.ID || s.keyspaceNames[k.Name] != nil {
		return damaged("keyspace %d is out of order", k.ID)
	}
	if k.Partitions == 0 || k.Partitions > MaxPartitions {
		return damaged("keyspace %d has %d partitions", k.ID, k.Partitions)
	}
	moves, suspects := k.moves, k.suspects
	s.addKeyspace(k)
	k.moves, k.suspects = moves, suspects
	if k.Deleting {
		s.deleting++
	}
	return nil
}

func (in *restorer) sessions(c *coder, part []*Session) error {
	if c.err != nil {
		return nil
	}
	s := in.s
	for _, x := range part {
		n := len(s.sessionOrder)
		if n > 0 && s.sessionOrder[n-1].ID >= x.ID || len(x.held) != len(x.Keyspaces) || x.isLease() {
			return damaged("session %d is out of order", x.ID)
		}
		s.addSession(x)
		if x.fresh {
			s.fresh = append(s.fresh, x)
		}
	}
	return nil
}

func (in *restorer) leases(c *coder) error {
	s := in.s
	var id KeyspaceID
	var first uint32
	number(c, &id)
	number(c, &first)
	n := c.length(0, leaseRowSize)
	if c.err != nil {
		return nil
	}
	k, ok := s.keyspaces[id]
	if !ok || int(first) != len(k.token) || uint64(first)+uint64(n) > uint64(k.Partitions) {
		return damaged("leases of keyspace %d from %d are out of place", id, first)
	}
	k.grow(n)
	var row, last leaseRow
	for p := first; p < first+uint32(n); p++ {
		if row.code(c, &last); c.err != nil {
			return nil
		}
		if row.holder == 0 {
			if row.flags != 0 || int(row.link) > len(in.names) {
				return damaged("lease %s/%d", k.Name, p)
			}
			row.link = in.name(row.link)
		} else {
			if int(row.holder) > len(s.sessionOrder) || row.link > k.Partitions {
				return damaged("lease %s/%d", k.Name, p)
			}
			row.link--
			row.holder = s.sessionOrder[row.holder-1].seat
			k.Owned++
		}
		k.add(row)
	}
	return nil
}

// name counts a reference to the name at a position, from 1.
func (in *restorer) name(position uint32) uint32 {
	if position == 0 {
		return 0
	}
	id := &in.nameID[position-1]
	if *id == 0 {
		*id = in.s.owners.hold(in.names[position-1])
	} else {
		in.s.owners.refs[*id]++
	}
	return *id
}

func (in *restorer) events(c *coder) {
	n := c.length(0, eventSize)
	var last Event
	for range n {
		if c.err != nil {
			return
		}
		var e Event
		codeEvent(c, &e, &last)
		e.Worker, e.From = in.same(e.Worker), in.same(e.From)
		slot := in.s.ledger.add()
		e.Revision = slot.Revision
		*slot = e
	}
}

// same returns one copy of equal names: a ledger names few workers often.
func (in *restorer) same(name string) string {
	if known, ok := in.intern[name]; ok {
		return known
	}
	in.intern[name] = name
	return name
}

// finish links the lists backwards, counts what is counted, and checks all.
func (in *restorer) finish() error {
	s := in.s
	if in.last == 0 {
		return damaged("empty")
	}
	for _, k := range s.keyspaceOrder {
		if len(k.token) != int(k.Partitions) {
			return damaged("keyspace %s has %d of %d leases", k.Name, len(k.token), k.Partitions)
		}
		for p := range k.flags {
			if k.flags[p]&flagDraining != 0 {
				k.Draining++
			}
		}
		for p, t := range k.suspects {
			if p >= k.Partitions {
				return damaged("suspect %s/%d", k.Name, p)
			}
			if t.quarantined && k.holder[p] == 0 {
				k.Quarantined++
			}
		}
	}
	for _, x := range s.sessionOrder {
		if err := in.link(x); err != nil {
			return err
		}
	}
	if err := in.finishKeys(); err != nil {
		return err
	}
	if err := s.Check(); err != nil {
		return damaged("%v", err)
	}
	return nil
}

func (in *restorer) link(x *Session) error {
	for i, id := range x.Keyspaces {
		k, ok := in.s.keyspaces[id]
		if !ok {
			return damaged("session %d has joined unknown keyspace %d", x.ID, id)
		}
		before := none
		for p := x.held[i].head; p != none; p = k.next[p] {
			if p >= k.Partitions || k.holder[p] != x.seat || k.prev[p] != unlinked {
				return damaged("session %d: list of %s", x.ID, k.Name)
			}
			k.prev[p] = before
			before = p
		}
		if x.held[i].tail != before {
			return damaged("session %d: end of list of %s", x.ID, k.Name)
		}
	}
	return nil
}
