package raftstore

import (
	"context"
	"time"

	"github.com/hashicorp/raft"
)

const (
	// tendEvery is how often the disk is looked at.
	tendEvery = 10 * time.Second
	// retrySnapshot is how long a snapshot that failed waits for the next try.
	retrySnapshot = 5 * time.Second
	// warnAgain is after how long a condition that lasts is logged again.
	warnAgain = 10 * time.Minute
)

// tend takes snapshots when the log has become large, and warns of a disk that
// is slow or filling up, until ctx ends.
func (s *Store) tend(ctx context.Context, r *raft.Raft) {
	tick := time.NewTicker(tendEvery)
	defer tick.Stop()
	slow, low := &lasting{}, &lasting{}
	var notBefore time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.retain.due:
		case <-tick.C:
			w := s.FsyncWindow()
			if slow.is(w.P99 > s.cfg.ElectionTimeout/10) {
				s.log.Warn("disk is slow: synced writes take a large part of the election timeout",
					"p50", w.P50, "p99", w.P99, "max", w.Max, "election-timeout", s.cfg.ElectionTimeout)
			}
			if s.files.dir == "" {
				break
			}
			size, free := volume(s.files.dir)
			if low.is(isLow(size, free)) {
				s.log.Warn("disk is filling up: the server ends when nothing more can be written",
					"data-dir", s.files.dir, "free-bytes", free, "size-bytes", size)
			}
		}
		if !s.retain.overdue() || time.Now().Before(notBefore) {
			continue
		}
		if err := s.snapshot(ctx, r); err != nil {
			notBefore = time.Now().Add(retrySnapshot)
			s.log.Warn("snapshot that the size of the log asks for was not taken", "cause", err, "again-in", retrySnapshot)
		}
	}
}

// snapshot takes one now. Raft's own goroutine may hang on the disk: it is left
// behind then, as Run does with the others.
func (s *Store) snapshot(ctx context.Context, r *raft.Raft) error {
	done := make(chan error, 1)
	go func() { done <- r.Snapshot().Error() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return nil
	}
}

// lasting tells when to warn of a condition that may last.
type lasting struct{ told time.Time }

func (l *lasting) is(now bool) bool {
	switch {
	case !now:
		l.told = time.Time{}
		return false
	case !l.told.IsZero() && time.Since(l.told) < warnAgain:
		return false
	default:
		l.told = time.Now()
		return true
	}
}
