package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// storage holds the series of what a server keeps on disk.
type storage struct {
	snapshotTime     prometheus.Gauge
	snapshotSize     prometheus.Gauge
	snapshotDuration prometheus.Gauge
	snapshotFailures prometheus.Counter
	sinceSnapshot    prometheus.Gauge
	dataSize         prometheus.Gauge
	dataFree         prometheus.Gauge
}

func (r *storage) add(s *set) {
	r.snapshotTime = s.gauge("raft_snapshot_last_success_timestamp_seconds", "When the newest snapshot was written or received, in Unix time; 0: there is none.")
	r.snapshotSize = s.gauge("raft_snapshot_size_bytes", "Size of the newest snapshot.")
	r.snapshotDuration = s.gauge("raft_snapshot_last_duration_seconds", "Time that writing the last snapshot took; 0: none since the server runs.")
	r.snapshotFailures = s.counter("raft_snapshot_failures_total", "Snapshots that could not be written.")
	r.sinceSnapshot = s.gauge("raft_log_entries_since_snapshot", "Log entries after the newest snapshot.")
	r.dataSize = s.gauge("data_dir_size_bytes", "Size of the files in the data directory.")
	r.dataFree = s.gauge("data_dir_free_bytes", "What the server may still fill of the file system that holds the data directory.")
}

// StorageStatus is what one look at the data directory says. Sizes are bytes.
type StorageStatus struct {
	LastLogIndex, SnapshotIndex uint64
	// OldestEntry and SnapshotTime are zero when there is none.
	OldestEntry, SnapshotTime time.Time
	SnapshotBytes             int64
	DataBytes, FreeBytes      int64
	Poisoned                  bool
}

// ObserveStorage sets the gauges from one look at the data directory.
func (r *Raft) ObserveStorage(s StorageStatus) {
	if r == nil {
		return
	}
	boolGauge(r.poisoned, s.Poisoned)
	age := 0.0
	if !s.OldestEntry.IsZero() {
		age = max(time.Since(s.OldestEntry).Seconds(), 0)
	}
	r.oldestLog.Set(age)
	taken := 0.0
	if !s.SnapshotTime.IsZero() {
		taken = float64(s.SnapshotTime.UnixMilli()) / 1e3
	}
	r.snapshotTime.Set(taken)
	r.snapshotSize.Set(float64(s.SnapshotBytes))
	r.sinceSnapshot.Set(float64(max(s.LastLogIndex, s.SnapshotIndex) - s.SnapshotIndex))
	r.dataSize.Set(float64(s.DataBytes))
	r.dataFree.Set(float64(s.FreeBytes))
}

// SnapshotTaken records how long a snapshot took to write.
func (r *Raft) SnapshotTaken(d time.Duration) {
	if r != nil {
		r.snapshotDuration.Set(d.Seconds())
	}
}

// SnapshotFailed counts a snapshot that could not be written.
func (r *Raft) SnapshotFailed() {
	if r != nil {
		r.snapshotFailures.Inc()
	}
}
