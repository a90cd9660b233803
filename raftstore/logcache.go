package raftstore

import (
	"fmt"
	"sync"

	"github.com/hashicorp/raft"
)

const (
	// cachedEntries and cachedBytes bound what the leader keeps in memory of the
	// log, so that replication need not read back what was just written.
	cachedEntries = 256
	cachedBytes   = 32 << 20
)

// logCache keeps the newest entries of a log.
type logCache struct {
	watchedLog

	mu    sync.RWMutex
	ring  [cachedEntries]*raft.Log // by index
	first uint64                   // the oldest that is kept, if any
	next  uint64                   // behind the newest
	bytes int
}

// GetLog reads an entry.
func (c *logCache) GetLog(index uint64, l *raft.Log) error {
	c.mu.RLock()
	kept := c.ring[index%cachedEntries]
	c.mu.RUnlock()
	if kept != nil && kept.Index == index {
		*l = *kept
		return nil
	}
	return c.watchedLog.GetLog(index, l)
}

// StoreLog stores one entry.
func (c *logCache) StoreLog(l *raft.Log) error { return c.StoreLogs([]*raft.Log{l}) }

// StoreLogs stores entries in order, and keeps them.
func (c *logCache) StoreLogs(logs []*raft.Log) error {
	if err := c.watchedLog.StoreLogs(logs); err != nil {
		return fmt.Errorf("store entries: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, l := range logs {
		if l.Index != c.next {
			c.clearLocked(l.Index)
		}
		c.next = l.Index + 1
		for c.next-c.first > cachedEntries {
			c.dropLocked()
		}
		c.ring[l.Index%cachedEntries] = l
		c.bytes += len(l.Data)
	}
	for c.bytes > cachedBytes {
		c.dropLocked()
	}
	return nil
}

// DeleteRange drops the head or the tail of the log.
func (c *logCache) DeleteRange(from, to uint64) error {
	c.mu.Lock()
	if from < c.next && to >= c.first {
		c.clearLocked(0)
	}
	c.mu.Unlock()
	return c.watchedLog.DeleteRange(from, to)
}

func (c *logCache) dropLocked() {
	slot := &c.ring[c.first%cachedEntries]
	if *slot != nil {
		c.bytes -= len((*slot).Data)
		*slot = nil
	}
	c.first++
}

// clearLocked empties the cache; the entry at next will be the first.
func (c *logCache) clearLocked(next uint64) {
	clear(c.ring[:])
	c.first, c.next, c.bytes = next, next, 0
}
