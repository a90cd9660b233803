package doctor

import (
	"fmt"
	"time"

	pb "github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
)

const (
	diskShare     = 0.10     // of the disk that should be free
	diskLeast     = 1 << 30  // bytes that should be free
	diskDire      = 64 << 20 // one segment of the log: the next one may not fit
	slowFsync     = 100 * time.Millisecond
	longLog       = 4 * 16384 // entries behind the newest snapshot; one is taken every 16384
	backupEvery   = 26 * time.Hour
	filesShare    = 0.8
	fewOpenFiles  = 4096
	staleSnapshot = 24 * time.Hour
)

// disk finds one that fills up, and storage that has failed.
func (e *exam) disk(s *Server) {
	h := s.health()
	if h.GetStoragePoisoned() {
		e.find(&pb.Finding{
			Severity: Critical, Code: "storage_poisoned", Subject: "server " + s.name(),
			What: "a write or sync of the log has failed", Evidence: "data directory " + h.GetDataDir(),
			Why:  "nobody knows what is on the disk: the server writes nothing more and ends",
			Next: "look at its log and at the disk (dmesg), then start it again or replace it: deploy/OPERATIONS.md, replace",
		})
	}
	free, all := h.GetDiskFreeBytes(), h.GetDiskSizeBytes()
	if all == 0 || float64(free) >= diskShare*float64(all) && free >= diskLeast {
		return
	}
	f := &pb.Finding{
		Severity: Warning, Code: "disk_filling", Subject: "server " + s.name(),
		What:     "the disk of the data directory fills up",
		Evidence: fmt.Sprintf("%s of %s free (%.1f %%) at %s, which uses %s", size(free), size(all), 100*float64(free)/float64(all), h.GetDataDir(), size(h.GetDataBytes())),
		Why:      "a server whose disk is full stops",
		Next:     "make room, or move the server to a larger disk: deploy/OPERATIONS.md, replace",
	}
	if free < diskDire {
		f.Severity, f.What = Critical, "the disk of the data directory is full"
	}
	e.find(f)
}

// fsync finds a disk that is slow to sync. How slow is too slow depends on the
// election timeout: keep-alives wait for it.
func (e *exam) fsync(s *Server) {
	h := s.health()
	p99 := time.Duration(h.GetFsyncP99Ms() * float64(time.Millisecond))
	limit := min(slowFsync, e.election()/2)
	if h.GetFsyncCount() == 0 || p99 <= limit {
		return
	}
	f := &pb.Finding{
		Severity: Warning, Code: "slow_fsync", Subject: "server " + s.name(),
		What: "the disk is slow to sync",
		Evidence: fmt.Sprintf("p50 %.1f ms, p99 %.1f ms, longest %.1f ms of %d syncs; election timeout %v",
			h.GetFsyncP50Ms(), h.GetFsyncP99Ms(), h.GetFsyncMaxMs(), h.GetFsyncCount(), e.election()),
		Why:  "each grant and each keep-alive waits for it, on the leader and on a follower",
		Next: "give the data directory a disk of its own; look at: iostat -x 1",
	}
	if p99 > e.election() {
		f.Severity, f.Why = Critical, "syncs take longer than the election timeout: leaders cannot stay in office"
	}
	e.find(f)
}

// log finds snapshots that do not come and a log that grows for it.
func (e *exam) log(s *Server) {
	h := s.health()
	behind := h.GetLogLastIndex() - min(h.GetSnapshotIndex(), h.GetLogLastIndex())
	if h.GetLogFirstIndex() > 0 && behind > longLog {
		e.find(&pb.Finding{
			Severity: Warning, Code: "log_growing", Subject: "server " + s.name(),
			What:     "the log grows and no snapshot cuts it",
			Evidence: fmt.Sprintf("entries %d to %d, newest snapshot at %d, %s in the data directory", h.GetLogFirstIndex(), h.GetLogLastIndex(), h.GetSnapshotIndex(), size(h.GetDataBytes())),
			Why:      "the disk fills, and each start and each catch-up reads it all",
			Next:     "look for errors about snapshots in its log",
		})
		return
	}
	if age := time.Duration(h.GetSnapshotAgeMs()) * time.Millisecond; age > staleSnapshot && behind > longLog/4+longLog/8 {
		e.find(&pb.Finding{
			Severity: Notice, Code: "snapshot_stale", Subject: "server " + s.name(),
			What: "the newest snapshot is old", Evidence: fmt.Sprintf("%v old, %d entries behind", age.Round(time.Minute), behind),
			Why:  "a start reads all entries since",
			Next: "look for errors about snapshots in its log",
		})
	}
}

// process finds a server that runs out of open files.
func (e *exam) process(s *Server) {
	h := s.health()
	open, most := h.GetOpenFiles(), h.GetMaxOpenFiles()
	switch {
	case most == 0:
	case float64(open) > filesShare*float64(most):
		e.find(&pb.Finding{
			Severity: Warning, Code: "open_files", Subject: "server " + s.name(),
			What: "the server has few open files left", Evidence: fmt.Sprintf("%d of %d", open, most),
			Why:  "each worker needs one, and the log too: without, it refuses workers and then stops",
			Next: "raise the limit: LimitNOFILE= of the systemd unit, ulimit -n elsewhere",
		})
	case most < fewOpenFiles:
		e.find(&pb.Finding{
			Severity: Notice, Code: "open_files", Subject: "server " + s.name(),
			What: "the server may open few files", Evidence: fmt.Sprintf("at most %d, %d are open", most, open),
			Why:  "each worker needs one",
			Next: "raise the limit: LimitNOFILE= of the systemd unit, ulimit -n elsewhere",
		})
	}
}

// LastBackup is when the newest backup was taken of a server that answers, and
// for how long the longest-running of them would know.
func LastBackup(f *Facts) (age time.Duration, seen bool, known time.Duration) {
	for _, s := range f.up() {
		h := s.health()
		known = max(known, time.Duration(h.GetUptimeMs())*time.Millisecond)
		if h.GetLastBackup() == nil {
			continue
		}
		// Both by the same clock.
		if d := h.GetWallClock().AsTime().Sub(h.GetLastBackup().AsTime()); !seen || d < age {
			age, seen = d, true
		}
	}
	return age, seen, known
}

func (e *exam) backup() {
	age, seen, known := LastBackup(e.Facts)
	f := &pb.Finding{
		Severity: Notice, Code: "no_backup", Subject: "cluster",
		What: "no backup has been taken for a while", Evidence: fmt.Sprintf("the last one %v ago", age.Round(time.Minute)),
		Why:  "with the disks of a majority everything is lost; a lost token counter is what hurts",
		Next: "leasehold backup save leasehold.backup",
	}
	switch {
	case seen && age > backupEvery:
		e.find(f)
	case !seen && known > backupEvery:
		f.What, f.Evidence = "no backup has been seen", fmt.Sprintf("in the %v that servers run; those before are not known", known.Round(time.Minute))
		e.find(f)
	}
}
