package raftstore

import (
	"io"
	"log/slog"
	"slices"
	"sort"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

// retention decides how much of the log stays when a snapshot has been taken,
// and when one is due for the size of what was written. What stays must
//
//   - reach back to the older snapshot on disk, in case the newer is damaged,
//   - serve followers that were away for a while (Config.TrailingLogs),
//   - and begin where a snapshot ends that is on its way to a follower, until
//     the follower has caught up with what was written meanwhile: it would need
//     the next snapshot at once otherwise, and never catch up,
//
// but never have more than Config.TrailingBytes.
type retention struct {
	trailing, trailingBytes, snapshotBytes uint64
	log                                    *slog.Logger

	// due has a value while more than snapshotBytes were written since the
	// newest snapshot.
	due chan struct{}

	mu     sync.Mutex
	meter  logMeter
	newest uint64 // where the newest snapshot ends
	older  uint64 // where the one before it ends; 0: there is none
	sent   []*transfer
	last   uint64 // of the log
}

func newRetention(c *Config) *retention {
	return &retention{
		trailing: c.TrailingLogs, trailingBytes: uint64(c.TrailingBytes), snapshotBytes: uint64(c.SnapshotBytes),
		log: c.Logger, due: make(chan struct{}, 1),
	}
}

// entryOverhead is what an entry takes in the log beside its data.
const entryOverhead = 64

// appended takes entries into account.
func (r *retention) appended(logs ...*raft.Log) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, l := range logs {
		r.meter.add(l.Index, len(l.Data)+entryOverhead)
		r.last = l.Index
	}
	if r.meter.since(r.newest) <= r.snapshotBytes {
		return
	}
	select {
	case r.due <- struct{}{}:
	default:
	}
}

// overdue reports whether a snapshot is due for the size of the log.
func (r *retention) overdue() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.meter.since(r.newest) > r.snapshotBytes
}

// snapshots tells where the kept snapshots end, newest first.
func (r *retention) snapshots(ends []uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.newest, r.older = 0, 0
	if len(ends) > 0 {
		r.newest = ends[0]
	}
	if len(ends) > 1 {
		r.older = ends[1]
	}
}

// transfer is a snapshot being read to be sent.
type transfer struct {
	io.Reader
	what Transfer
	log  *slog.Logger
	sent atomic.Int64
	// The rest is for a transfer that has arrived: how far the follower has come
	// since, and when it last moved.
	arrived bool
	reached uint64
	moved   time.Time
}

// arrivedWait is how long a follower that has received a snapshot and does not
// move keeps the log.
const arrivedWait = time.Minute

// Read counts.
func (t *transfer) Read(b []byte) (int, error) {
	n, err := t.Reader.Read(b)
	if t.sent.Add(int64(n)) == int64(n) && n > 0 { // the follower has been reached
		t.log.Info("sending a snapshot", "to", t.what.To.ID, "index", t.what.Index, "bytes", t.what.Total)
	}
	return n, err
}

// sending keeps the log from the end of a snapshot on, until the follower has
// caught up. done tells how the transfer ended.
func (r *retention) sending(what Transfer, data io.Reader) (counted io.Reader, done func(error)) {
	t := &transfer{Reader: data, what: what, log: r.log, reached: what.Index}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sent = slices.DeleteFunc(r.sent, func(o *transfer) bool { return o.what.To == what.To })
	r.sent = append(r.sent, t)
	return t, func(err error) {
		args := []any{"to", what.To.ID, "index", what.Index, "bytes", t.sent.Load(), "took", time.Since(what.Started)}
		switch {
		case err == nil:
			r.log.Info("snapshot sent", args...)
		case t.sent.Load() > 0:
			r.log.Warn("snapshot was not sent", append(args, "cause", err)...)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		if err == nil {
			t.arrived, t.moved = true, time.Now()
			return
		}
		r.sent = slices.DeleteFunc(r.sent, func(o *transfer) bool { return o == t })
	}
}

// answered takes note of how far a follower has come.
func (r *retention) answered(by Peer, reached uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, t := range r.sent {
		if t.arrived && t.what.To == by && reached > t.reached {
			t.reached, t.moved = reached, time.Now()
		}
	}
	r.sent = slices.DeleteFunc(r.sent, func(t *transfer) bool { return t.arrived && t.reached+r.trailing/2 >= r.last })
}

// transfers lists what is being sent.
func (r *retention) transfers() []Transfer {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []Transfer
	for _, t := range r.sent {
		if !t.arrived {
			t.what.Bytes = t.sent.Load()
			all = append(all, t.what)
		}
	}
	return all
}

// keepFrom returns the first entry that has to stay in a log that ends at last.
func (r *retention) keepFrom(last uint64) uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	from := last - min(r.trailing, last) + 1
	if r.older > 0 {
		from = min(from, r.older+1)
	}
	r.sent = slices.DeleteFunc(r.sent, func(t *transfer) bool { return t.arrived && time.Since(t.moved) > arrivedWait })
	for _, t := range r.sent {
		from = min(from, t.reached) // Raft also asks for the one before the next
	}
	return max(from, r.meter.within(r.trailingBytes))
}

// removed takes the end of entries into account.
func (r *retention) removed(from, to, last uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if to >= last {
		r.meter.cutTail(from)
	} else {
		r.meter.cutHead(to)
	}
}

// logMeter knows how many bytes the entries behind an index have, to within a
// mark: a quarter of an entry of the largest size, or 256 entries.
type logMeter struct {
	total uint64 // bytes of all entries that were ever added
	marks []meterMark
}

// meterMark is the first entry behind a mark, and the bytes added before it.
type meterMark struct{ index, before uint64 }

const (
	markBytes   = maxEntry / 4
	markEntries = 256
)

func (m *logMeter) add(index uint64, bytes int) {
	if n := len(m.marks); n == 0 || m.total-m.marks[n-1].before >= markBytes || index-m.marks[n-1].index >= markEntries {
		m.marks = append(m.marks, meterMark{index, m.total})
	}
	m.total += uint64(bytes)
}

// since returns the bytes of the entries after index, a mark more at most.
func (m *logMeter) since(index uint64) uint64 {
	i := sort.Search(len(m.marks), func(i int) bool { return m.marks[i].index > index+1 })
	if len(m.marks) == 0 {
		return 0
	}
	return m.total - m.marks[max(i-1, 0)].before
}

// within returns the first entry from which on there are at most that many
// bytes.
func (m *logMeter) within(bytes uint64) uint64 {
	i := sort.Search(len(m.marks), func(i int) bool { return m.total-m.marks[i].before <= bytes })
	switch {
	case len(m.marks) == 0:
		return 0
	case i == len(m.marks):
		return m.marks[i-1].index
	default:
		return m.marks[i].index
	}
}

// cutTail forgets the entries from an index on.
func (m *logMeter) cutTail(from uint64) {
	for n := len(m.marks); n > 0 && m.marks[n-1].index >= from; n-- {
		m.total = m.marks[n-1].before
		m.marks = m.marks[:n-1]
	}
}

// cutHead forgets the entries up to an index.
func (m *logMeter) cutHead(to uint64) {
	for len(m.marks) > 1 && m.marks[1].index <= to+1 {
		m.marks = m.marks[1:]
	}
}
