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
//   - A server that has lost its data, or has that of another cluster, is never
//     taken for the one that was there before: it neither votes nor answers.
//   - An entry that only a newer server can apply ends Run with an *UpgradeError;
//     nothing that is stored changes, and the next start says the same.
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
//	DIR/unfinished        there while Seed writes the directory
//	DIR/server-id         who this directory belongs to
//	DIR/store-id          this directory's own random id
//	DIR/cluster-id        the cluster it belongs to, once that is known
//	DIR/log/*.wal         the Raft log (raft-wal), synced on every append
//	DIR/log/wal-meta.db   its list of segments, and Raft's term and vote (bbolt)
//	DIR/log/acked         the newest segment in which something was acknowledged
//	DIR/snapshots/…       snapshots, the newest two, with checksums
//	DIR/snapshot-….damaged  one that was damaged and not needed; may be deleted
//
// raft-wal's file layer is what tests of power loss take the place of: it has
// the segments, not wal-meta.db and the snapshots, which rest on bbolt and on
// Raft's own order of write, sync and rename. A test of the program on a file
// system that is cut off covers those.
//
// # Servers
//
// A Peer has a name, which its operator chose, and a store, the random id of its
// data directory. Raft knows it as name#store. A vote, and an acknowledged entry,
// are promises that lie in the directory; so a directory that was emptied is
// another server, which has promised nothing, and has to be added to the group
// before it counts. One that has lost its log alone is refused when it is opened.
// All else speaks of names.
//
// An address says nothing about who is there. Therefore each connection begins
// with a hello:
//
//	caller    cluster c1, from s1#5e0f…, to s2#a3d1…, knows feature level 3
//	answer    go on | go on, but you are not in my configuration
//	          | I am of cluster c2 | I am s2#77b0… | you are too old
//
// The caller learns whom to reach from Raft's configuration, where an address
// reads s2#a3d1…@host:port, and asks Config.Resolve where that server is now;
// so all of them may come back elsewhere at once, before the leader has brought
// the configuration up to date (MovePeer). In Raft's own messages the address is
// replaced by the id: Raft remembers its vote by what stands there, and two
// servers that exchange addresses within a term must not pass for each other.
//
// Changes of the group are made by the leader, one at a time, each against the
// configuration that was looked at. A server joins without a vote and gets one
// when it has caught up; a change after which no majority would answer is
// refused. A server that was removed without hearing of it is told by the first
// that it calls, says so in Status, and asks nobody for votes from then on.
//
// # Reads
//
// ReadIndex asks the voters, by heartbeats, whether this server still leads, and
// gives the index that was committed before it asked; Read waits until the state
// here has come that far. No disk is waited for. Why it is linearizable: let a
// write be acknowledged before the read began, by a leader of a later term than
// this server's. A majority has voted in that term or a later one, and a vote is
// on disk before it is given, so it outlives restarts. Every majority that this
// server asks has one of those servers in it; it was asked after the read began,
// so after it voted, and refuses. This server counts itself in the same way: only
// while its own term is still the one it leads. Raft's VerifyLeader does not do:
// it counts answers by when they arrive. An answer that was under way since
// before the write then lets the old leader show what was before it.
//
// # News of commits
//
// Raft tells a follower what is committed with the next entry, or after
// CommitTimeout. The leader here tells it at once, by a request without entries
// that names the last entry which this follower has acknowledged in this term,
// and of no commit beyond that entry: Raft's follower takes its whole log for
// committed up to the index that it is told, so it must not be told of entries
// that may be another leader's in its log. One is under way to each follower at a
// time, none while a request of Raft's is, and what was lost is left to Raft.
//
// # The leader's end
//
// A server whose connections from the leader end, and whose calls to the leader's
// address are refused twice, knows that the leader's process has ended and stands
// for election at once, as in a transfer. The voters do so one after the other,
// by their ids, so that they do not split the votes. Whatever else happens to a
// leader is left to the heartbeat timeout: a cut network refuses nobody. No
// promise rests on this: it decides when an election is held, not who may win it.
//
// # Goroutines
//
// Run itself supervises. Beside it run Raft's own (three, and two per peer on
// the leader), the accept loop and one per incoming connection, one that hands on what they
// receive, one that looks whether the leader has ended, if it may have, one that builds
// log entries, one that watches the disk, one that looks after its size, one that follows leadership, and at
// most three that each wait for an entry in flight. While leading there are two
// more: expiry, and Config.Lead; while somebody reads, one for each other
// voter; and one for each follower that is told of a commit. One more waits for each change of the group
// until it is committed or the leadership ends, and one for a Probe.
//
// # Locks
//
// Store.mu guards the state; proposer.mu the queues; neither is held while the
// other is taken, nor across anything that can block. The locks of members,
// greeter and transport guard their own fields, and nothing is called under them.
package raftstore
