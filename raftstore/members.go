package raftstore

import (
	"sync"
	"sync/atomic"

	"github.com/hashicorp/raft"
)

// members follows Raft's configuration, of which Raft itself tells neither the
// index nor what is committed.
type members struct {
	logged atomic.Uint64 // index of the newest that is in the log, committed or not

	mu    sync.Mutex
	conf  raft.Configuration // the newest that is committed and applied here
	index uint64             // of its log entry; 0: none yet
}

// apply notes a committed configuration.
func (m *members) apply(index uint64, conf raft.Configuration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if index > m.index {
		m.index, m.conf = index, conf
	}
	raise(&m.logged, index)
}

func (m *members) committed() (raft.Configuration, uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.conf, m.index
}

// newest is the index of the newest configuration that is known here.
func (m *members) newest() uint64 { return m.logged.Load() }

// snapshotMembers notes the configuration that came with the newest snapshot.
func (s *Store) snapshotMembers() {
	if list, err := s.files.snaps.List(); err == nil && len(list) > 0 {
		s.members.apply(list[0].ConfigurationIndex, list[0].Configuration)
	}
}

// watchedLog notes the configurations that are written to the log.
type watchedLog struct {
	*checkedLog
	members *members
}

// StoreLog stores one entry.
func (w watchedLog) StoreLog(l *raft.Log) error { return w.StoreLogs([]*raft.Log{l}) }

// StoreLogs stores entries in order.
func (w watchedLog) StoreLogs(logs []*raft.Log) error {
	for _, l := range logs {
		if l.Type == raft.LogConfiguration {
			raise(&w.members.logged, l.Index)
		}
	}
	return w.checkedLog.StoreLogs(logs)
}
