package state

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
)

// A snapshot:
//
//	magic    8 bytes, snapshotMagic
//	version  1 byte, snapshotVersion
//	frames   each: kind 1 byte, length 4 bytes little-endian, payload;
//	         kinds never fall; one with frameMayIgnore is skipped by a
//	         version that does not know it
//	end      a frame of kind 0xff with the CRC-32C of all bytes before it
//
// Equal states give equal bytes, whatever way they came about: seats and name
// numbers, which differ from server to server, are written as positions in
// ordered lists.
const (
	snapshotMagic   = "LHSTATE\n"
	snapshotVersion = 1

	frameMeta        = 1
	frameServers     = 2
	frameWorkers     = 3
	frameNames       = 4
	frameKeyspace    = 5
	frameSessions    = 6
	frameLeases      = 7
	frameRequests    = 8
	frameEvents      = 9
	frameCluster     = 10 // feature level and strict hold, when there is either
	frameEtcdLease   = 11 // sessions without a worker
	frameKeys        = 12 // revisions of the keys, once any was written
	frameKeyBase     = 13 // what was there at the compacted revision
	frameKeyLog      = 14 // changes since
	frameSequences   = 15
	frameAlarms      = 16
	frameCredentials = 17
	frameKeyring     = 18
	frameOwners      = 19 // of sessions that have one
	frameMayIgnore   = 0x80
	frameEnd         = 0xff

	frameHeader   = 5
	frameRows     = 1 << 14 // leases, requests or events in one frame
	frameSessionN = 1 << 9  // sessions or workers in one frame
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Snapshot is a frozen copy of a State. It can be written while the State
// goes on, by one goroutine.
type Snapshot struct {
	head     []byte // everything but the large tables, encoded
	tables   []frozenTable
	seatRank []uint32 // seat -> position in session order, from 1
	nameRank []uint32 // name number -> position in name order, from 1
	requests []uint64
	events   ledger
	tail     []byte // frames after the large tables
	keys     frozenKeys
	access   []byte // frames after those of keys
}

type frozenTable struct {
	keyspace KeyspaceID
	leaseTable
}

// Snapshot captures the state for Write. It copies what is dense, takes hold
// of the ledger's chunks, which never change once written, and encodes the
// rest. It must be called while nothing applies; readers do no harm.
func (s *State) Snapshot() *Snapshot {
	p := &Snapshot{
		seatRank: make([]uint32, len(s.seats)),
		nameRank: make([]uint32, len(s.owners.names)),
		requests: s.requests.ordered(),
		events:   s.ledger,
	}
	p.events.chunks = slices.Clone(s.ledger.chunks)
	for i, x := range s.workerSessions() {
		p.seatRank[x.seat] = uint32(i + 1)
	}
	names := sortedKeys(s.owners.ids)
	for i, n := range names {
		p.nameRank[s.owners.ids[n]] = uint32(i + 1)
	}
	for _, k := range s.keyspaceOrder {
		p.tables = append(p.tables, frozenTable{k.ID, leaseTable{
			token: slices.Clone(k.token), holder: slices.Clone(k.holder), next: slices.Clone(k.next),
			since: slices.Clone(k.since), flags: slices.Clone(k.flags),
		}})
	}
	p.head = s.appendHead(nil, names)
	if s.feature != 0 || s.strictAt != 0 {
		p.tail = appendFrame(nil, frameCluster, s.codeCluster)
	}
	p.tail = s.appendLeases(p.tail)
	p.keys = s.freezeKeys()
	p.access = s.appendAccess(nil)
	return p
}

// appendHead encodes the frames that come before the lease tables.
func (s *State) appendHead(b []byte, names []string) []byte {
	b = appendFrame(b, frameMeta, s.codeMeta)
	b = appendFrame(b, frameServers, func(c *coder) {
		list(c, &s.servers, 6, func(c *coder, v *Server) { v.code(c) })
	})
	for part := range slices.Chunk(s.workerOrder, frameSessionN) {
		b = appendFrame(b, frameWorkers, func(c *coder) { list(c, &part, 7, codeWorker) })
	}
	for part := range slices.Chunk(names, frameRows) {
		b = appendFrame(b, frameNames, func(c *coder) { list(c, &part, 1, text[string]) })
	}
	for _, k := range s.keyspaceOrder {
		b = appendFrame(b, frameKeyspace, k.code)
	}
	for part := range slices.Chunk(s.workerSessions(), frameSessionN) {
		b = appendFrame(b, frameSessions, func(c *coder) { list(c, &part, 25, codeSession) })
	}
	return b
}

func appendFrame(b []byte, kind uint8, payload func(*coder)) []byte {
	at := len(b)
	c := coder{buf: append(b, kind, 0, 0, 0, 0)}
	payload(&c)
	binary.LittleEndian.PutUint32(c.buf[at+1:], uint32(len(c.buf)-at-frameHeader))
	return c.buf
}

// summing writes through and sums what it writes.
type summing struct {
	w   io.Writer
	sum uint32
	err error
}

func (w *summing) write(b []byte) {
	if w.err != nil {
		return
	}
	w.sum = crc32.Update(w.sum, castagnoli, b)
	_, w.err = w.w.Write(b)
}

// Write encodes the snapshot with a header and a CRC-32C at the end, frame by
// frame. It may be called again.
func (p *Snapshot) Write(w io.Writer) error {
	out := &summing{w: w}
	out.write(append([]byte(snapshotMagic), snapshotVersion))
	out.write(p.head)
	var b []byte
	for i := range p.tables {
		t := &p.tables[i]
		for first := 0; first < len(t.token); first += frameRows {
			n := min(frameRows, len(t.token)-first)
			b = appendFrame(b[:0], frameLeases, func(c *coder) { p.codeRows(c, t, uint32(first), n) })
			out.write(b)
		}
	}
	for part := range slices.Chunk(p.requests, frameRows) {
		b = appendFrame(b[:0], frameRequests, func(c *coder) { list(c, &part, 8, fixed[uint64]) })
		out.write(b)
	}
	for first := 0; first < p.events.count; first += frameRows {
		b = appendFrame(b[:0], frameEvents, func(c *coder) {
			n := c.length(min(frameRows, p.events.count-first), eventSize)
			last := Event{}
			for i := range n {
				codeEvent(c, p.events.at(first+i), &last)
			}
		})
		out.write(b)
	}
	out.write(p.tail)
	b = p.keys.write(out, b)
	out.write(p.access)
	b = appendFrame(b[:0], frameEnd, func(c *coder) {
		c.buf = binary.LittleEndian.AppendUint32(c.buf, crc32.Update(out.sum, castagnoli, []byte{frameEnd, 4, 0, 0, 0}))
	})
	out.write(b)
	if out.err != nil {
		return fmt.Errorf("write snapshot: %w", out.err)
	}
	return nil
}

// codeRows writes n partitions from first on.
func (p *Snapshot) codeRows(c *coder, t *frozenTable, first uint32, n int) {
	number(c, &t.keyspace)
	number(c, &first)
	c.length(n, leaseRowSize)
	var last leaseRow
	for i := first; i < first+uint32(n); i++ {
		row := leaseRow{token: t.token[i], holder: p.seatRank[t.holder[i]], since: t.since[i], flags: t.flags[i]}
		if t.holder[i] == 0 {
			row.link = p.nameRank[t.next[i]]
		} else {
			// From 1, so that the end of a list is 0.
			row.link = t.next[i] + 1
		}
		row.code(c, &last)
	}
}
