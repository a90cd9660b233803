// Package raftstore keeps raftstore/state on a group of servers with Raft: it
// owns the log, the snapshots, the network between the servers, and the duties
// that go with being the leader.
//
// # Promises
//
//   - A result is given to its proposer only after the command has been written
//     and synced by a majority and applied here.
//   - Commands of one Propose keep their order, and stand in one log entry when
//     they fit into one.
//   - A session is never expired early: time passes for it only as the log says,
//     and the leader writes no more time into the log than its own clock measured
//     since its previous clock entry of the same term.
//   - Read shows everything that was acknowledged anywhere before it was called.
//   - After a failed write or fsync, or a write that hangs, the store refuses all
//     further work for good and Run returns a *StorageError. A corrupt log or
//     snapshot is refused when it is opened, with the file's name.
//
// # Not promised
//
// View and a Watcher on a follower show the past, how old it is tells Status.
// A proposal whose leader was deposed may or may not be carried out
// (ErrUnknownOutcome): conditions in the command, or ProposeRetry, make it safe
// to try again. A bit flipped in the very last write of the log cannot be told
// from a write that power loss cut short; it is dropped like one.
//
// # Files
//
//	DIR/lock              held while a process has the directory open
//	DIR/server-id         who this directory belongs to
//	DIR/log/*.wal         the Raft log (raft-wal), synced on every append
//	DIR/log/wal-meta.db   its list of segments, and Raft's term and vote (bbolt)
//	DIR/snapshots/…       snapshots, the newest two
//
// # Goroutines
//
// Run itself supervises. Beside it run Raft's own (three, and two per peer on
// the leader), the accept loop and one per incoming connection, one that builds
// log entries, one that watches the disk, one that follows leadership, and at
// most three that each wait for an entry in flight. While leading there are two
// more: expiry, and Config.Lead.
//
// # Locks
//
// Store.mu guards the state; proposer.mu the queues; neither is held while the
// other is taken, nor across anything that can block.
package raftstore
