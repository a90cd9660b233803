package server

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"github.com/leasehold-dev/leasehold/raftstore"
)

// vitals is what this process measures of itself for GetHealth, beyond what
// the floors tell when they are asked.
type vitals struct {
	boot          uint64 // start of this process, see gossip.Meta
	leaderChanges atomic.Uint64
	lastBackup    atomic.Int64 // Unix milliseconds; 0: none since it runs
	disk          diskLook[raftstore.StorageStatus]
	values        valueLook
}

// healthNow answers GetHealth. What is not known stays empty.
func (s *Server) healthNow() *leaseholdv1.ServerHealth {
	m := &leaseholdv1.ServerHealth{
		Boot:    s.vitals.boot,
		DataDir: s.cfg.DataDir, SnapshotAgeMs: -1,
		LeaderChanges: s.vitals.leaderChanges.Load(),
		Goroutines:    int64(runtime.NumGoroutine()),
	}
	if at := s.vitals.lastBackup.Load(); at > 0 {
		m.LastBackup = timestamppb.New(time.UnixMilli(at))
	}
	m.ResidentBytes, m.OpenFiles, m.MaxOpenFiles = processFigures()
	s.storageHealth(m)
	s.gossipHealth(m)
	s.keyHealth(m)
	s.certificateHealth(m)
	return m
}

// backedUp remembers that this server has sent a whole backup.
func (s *Server) backedUp(at time.Time) {
	s.vitals.lastBackup.Store(at.UnixMilli())
	s.metrics.Raft().BackedUp(at)
}

// storageHealth adds what the store knows of its log, its snapshots and its disk.
func (s *Server) storageHealth(m *leaseholdv1.ServerHealth) {
	m.StoreId = s.store.Self().Store
	d := s.storage(diskPatience)
	m.DiskFreeBytes, m.DiskSizeBytes, m.DataBytes = uint64(d.FreeBytes), uint64(d.SizeBytes), uint64(d.DataBytes)
	m.StoragePoisoned = d.Poisoned
	m.LogFirstIndex, m.LogLastIndex = d.FirstIndex, s.store.Status().LastIndex
	m.SnapshotIndex, m.SnapshotBytes = d.SnapshotIndex, uint64(d.SnapshotBytes)
	if !d.SnapshotTime.IsZero() {
		m.SnapshotAgeMs = max(time.Since(d.SnapshotTime).Milliseconds(), 0)
	}
	w := s.store.FsyncWindow()
	ms := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
	m.FsyncCount, m.FsyncP50Ms, m.FsyncP99Ms, m.FsyncMaxMs = uint64(w.Count), ms(w.P50), ms(w.P99), ms(w.Max)
}

// storage looks at the disk, for as long as that at most.
func (s *Server) storage(most time.Duration) raftstore.StorageStatus {
	return s.vitals.disk.look(most, func() (raftstore.StorageStatus, error) { return s.store.Storage(), nil })
}

// gossipHealth adds the member table as this server sees it, and what was odd.
func (s *Server) gossipHealth(m *leaseholdv1.ServerHealth) {
	stats := s.gossip.Stats()
	m.GossipUdpFailures, m.GossipConflicts, m.GossipStrangers = stats.UDPFailures, stats.Conflicts, stats.Strangers
	for _, g := range s.gossip.Members() {
		m.Gossip = append(m.Gossip, &leaseholdv1.GossipView{
			Role: string(g.Meta.Role), Id: g.Meta.ID, Status: g.Status.String(), Addr: g.Addr,
			SinceMs: time.Since(g.Since).Milliseconds(),
		})
	}
}

// diskPatience is how long GetHealth waits for a look at the disk. A disk that
// hangs must not silence the server that could tell of it.
const diskPatience = 300 * time.Millisecond

// diskLook looks at the data directory, one look at a time. Who asks while an
// earlier look hangs gets the figures of the one before.
type diskLook[T any] struct {
	mu   sync.Mutex
	last T
	busy chan struct{} // of the look in progress, closed when it ends; nil: none
}

func (d *diskLook[T]) look(most time.Duration, measure func() (T, error)) T {
	d.mu.Lock()
	busy := d.busy
	if busy == nil {
		busy = make(chan struct{})
		d.busy = busy
		go d.measure(measure, busy)
	}
	d.mu.Unlock()
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-busy:
	case <-timer.C:
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.last
}

func (d *diskLook[T]) measure(measure func() (T, error), busy chan struct{}) {
	defer close(busy)
	figures, err := measure()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.busy = nil
	if err == nil {
		d.last = figures
	}
}
