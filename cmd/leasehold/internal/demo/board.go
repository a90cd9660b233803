package demo

import (
	"context"
	"slices"
	"sync"
	"time"
)

// Board is what the driver knows right now, from the copies of their evidence
// that the workers send. The driver waits by it and tells the story from it;
// the verdict comes from the files.
type Board struct {
	mu       sync.Mutex
	changed  chan struct{}                // closed and replaced at every record
	owners   []Holding                    // by partition
	running  map[string]map[uint32]uint64 // process → partition → token
	records  map[string]map[Kind]int      // process → how many of each kind
	gate     map[string]map[uint32]uint64
	returned map[string]map[uint64]bool // process → tokens whose handlers have returned
	lastMove time.Duration
	acked    time.Duration // newest send time of an acknowledged keep-alive
}

// Holding is who ran a partition last.
type Holding struct {
	Process, Worker string
	Token           uint64
	Since           time.Duration
	Wrote           bool // an order has been accepted under this token
}

func newBoard(partitions uint32) *Board {
	return &Board{
		changed: make(chan struct{}), owners: make([]Holding, partitions),
		running: map[string]map[uint32]uint64{},
		records: map[string]map[Kind]int{}, gate: map[string]map[uint32]uint64{}, returned: map[string]map[uint64]bool{},
	}
}

// Put takes in one record of a worker process.
func (b *Board) Put(r Record) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.records[r.Process] == nil {
		b.records[r.Process] = map[Kind]int{}
		b.running[r.Process] = map[uint32]uint64{}
		b.gate[r.Process] = map[uint32]uint64{}
		b.returned[r.Process] = map[uint64]bool{}
	}
	b.records[r.Process][r.Kind]++
	if r.Kind == KindReturn {
		b.returned[r.Process][r.Token] = true
	}
	known := int(r.Partition) < len(b.owners)
	switch {
	case r.Kind == KindAck:
		b.acked = max(b.acked, r.Sent)
	case r.Kind == KindGate:
		b.gate[r.Process][r.Partition] = r.Token
	case r.Kind == KindRunning && known:
		b.running[r.Process][r.Partition] = r.Token
		b.lastMove = max(b.lastMove, r.At)
		if o := &b.owners[r.Partition]; r.Token > o.Token {
			*o = Holding{Process: r.Process, Worker: r.Worker, Token: r.Token, Since: r.At}
		}
	case r.Kind == KindWrote && known:
		if o := &b.owners[r.Partition]; o.Token == r.Token {
			o.Wrote = true
		}
	case (r.Kind == KindEnd || r.Kind == KindReturn) && b.running[r.Process][r.Partition] == r.Token:
		delete(b.running[r.Process], r.Partition)
		b.lastMove = max(b.lastMove, r.At)
	}
	b.wakeLocked()
}

// Dead says that a process has ended: it runs nothing any more.
func (b *Board) Dead(process string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.running, process)
	b.wakeLocked()
}

func (b *Board) wakeLocked() {
	close(b.changed)
	b.changed = make(chan struct{})
}

// Wait returns when cond holds; it is asked again after each record, under
// the board's lock, and at least every 50 ms for conditions on time.
func (b *Board) Wait(ctx context.Context, cond func(*View) bool) error {
	for {
		b.mu.Lock()
		ok, changed := cond((*View)(b)), b.changed
		b.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-changed:
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// Look runs fn under the board's lock.
func (b *Board) Look(fn func(*View)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	fn((*View)(b))
}

// View is the board while its lock is held.
type View Board

// Seen counts the records of a kind that a process has written.
func (v *View) Seen(process string, kind Kind) int { return v.records[process][kind] }

// Owner is who ran a partition last.
func (v *View) Owner(partition uint32) Holding { return v.owners[partition] }

// Owners are those of all partitions.
func (v *View) Owners() []Holding { return slices.Clone(v.owners) }

// Gate is the token of the last handler that waited at the gate of a
// partition in a process, 0 if none has.
func (v *View) Gate(process string, partition uint32) uint64 { return v.gate[process][partition] }

// Returned says whether the handler of a token has returned in a process.
func (v *View) Returned(process string, token uint64) bool { return v.returned[process][token] }

// Acked is the newest send time of an acknowledged keep-alive of any process.
func (v *View) Acked() time.Duration { return v.acked }

// HeldBy are the partitions whose handlers run in a process, by number.
func (v *View) HeldBy(process string) []uint32 {
	var held []uint32
	for p := range v.running[process] {
		held = append(held, p)
	}
	slices.Sort(held)
	return held
}

// Owned says whether the newest owner of every partition runs in one of the
// processes.
func (v *View) Owned(processes []string) bool {
	for p, o := range v.owners {
		if !slices.Contains(processes, o.Process) || v.running[o.Process][uint32(p)] != o.Token {
			return false
		}
	}
	return true
}

// Even says whether no process has more than a tenth above the mean, rounded
// up, or nothing: then nobody needs to be evened out.
func (v *View) Even(processes []string) bool {
	total, n := len(v.owners), len(processes)
	limit := (11*total + 10*n - 1) / (10 * n)
	floor := 9 * total / (10 * n)
	for _, p := range processes {
		if held := len(v.running[p]); held > limit || held < floor {
			return false
		}
	}
	return true
}

// Quiet says whether nothing has moved for a while.
func (v *View) Quiet(d time.Duration) bool { return Now()-v.lastMove >= d }
