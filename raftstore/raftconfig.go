package raftstore

import (
	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

const (
	// maxAppendEntries bounds how many entries one request carries; shorten
	// bounds their bytes. It is also how many entries share one sync of the
	// leader's log.
	maxAppendEntries = 64
	// segmentSize of the log's files, in bytes.
	segmentSize = 16 << 20
	// keptSnapshots is how many snapshots stay on disk.
	keptSnapshots = 2
)

// raftConfig sets every field of Raft's that we have an opinion on.
func raftConfig(c *Config, id raft.ServerID, logger hclog.Logger) *raft.Config {
	rc := raft.DefaultConfig()
	rc.LocalID = id
	rc.HeartbeatTimeout = c.ElectionTimeout
	rc.ElectionTimeout = c.ElectionTimeout
	rc.LeaderLeaseTimeout = c.ElectionTimeout / 2
	rc.CommitTimeout = c.CommitTimeout
	rc.MaxAppendEntries = maxAppendEntries
	rc.BatchApplyCh = true
	rc.TrailingLogs = 1 // checkedLog.DeleteRange decides what stays
	rc.SnapshotThreshold = c.SnapshotThreshold
	rc.SnapshotInterval = c.SnapshotInterval
	rc.ShutdownOnRemove = false // we decide ourselves what a removed server does
	rc.NoLegacyTelemetry = true // it puts server ids into metric names
	// The state is restored by openSnapshots, which refuses what Raft would pass
	// over: a newest snapshot that cannot be read.
	rc.NoSnapshotRestoreOnStart = true
	rc.Logger = logger
	return rc
}
