package raftstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/hashicorp/raft"

	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// Clock measures time that passes. It never goes back and should count
// suspend; ownership/bootclock has one.
type Clock interface {
	Now() time.Duration
}

// Network is what the servers talk over: TCP, TLS, or a test's own.
type Network interface {
	// Listen opens addr for the other servers.
	Listen(addr string) (net.Listener, error)
	// Dial connects to another server's advertised address.
	Dial(addr string, timeout time.Duration) (net.Conn, error)
}

// Config says how a Store works. Zero values take the default.
type Config struct {
	// ServerID names this server in the Raft group. With a Dir it may be left
	// empty after the first start; a stored id wins, and another one given is
	// refused with an *IdentityError.
	ServerID string
	// Dir is the data directory, created with mode 0700. Empty: everything is
	// kept in memory and gone with the process.
	Dir string
	// RaftAddr is where to listen for the other servers. Empty: this server is
	// alone and listens nowhere.
	RaftAddr string
	// Advertise is the address the other servers dial, host:port. Default: the
	// one that the listener reports, which must then be reachable by them.
	Advertise string
	// Resolve tells where a server is now, before each connection to it; not ok:
	// where Raft's configuration says. So servers find each other also when all
	// of them have come back with other addresses. It must not block. May be nil.
	Resolve func(Peer) (addr string, ok bool)
	// MaxFeature is the highest feature level that this server knows. A log that
	// needs a higher one ends Run with an *UpgradeError. Default
	// state.MaxFeature.
	MaxFeature state.Feature
	// Version of this server, for messages.
	Version string
	// Announce is published by every term's leader: how to reach it. ID and
	// RaftAddr are filled in.
	Announce state.Server
	// Clock measures the time that goes into the log. Default: the process's
	// monotonic clock.
	Clock Clock
	// Wall reads the wall clock, for display and for the first token of a new
	// cluster. Default time.Now. A clock before 2025 is refused by New.
	Wall func() time.Time
	// Logger, default slog.Default().
	Logger *slog.Logger
	// Metrics may be nil.
	Metrics Observer

	// ElectionTimeout is after how long without contact a follower stands for
	// election (one to three times this), and the heartbeat timeout; a leader
	// without a quorum steps down after half of it. Default 500 ms, least 50 ms.
	ElectionTimeout time.Duration
	// CommitTimeout is how soon an idle follower hears of a commit (one to two
	// times this). The leader, which serves, does not wait for it. Default 50 ms: a
	// shorter one costs processor time on an idle cluster.
	CommitTimeout time.Duration
	// KeepAliveGather is how long the first keep-alive waits at least for others
	// to share its log entry; a hundredth of the shortest TTL if that is longer,
	// at most 100 ms. Default 20 ms.
	KeepAliveGather time.Duration
	// HangBound is after how long a hanging disk operation makes this server
	// stop sending heartbeats, so that another becomes leader. Default 2 s,
	// or the election timeout if that is longer.
	HangBound time.Duration
	// HangExit is after how long a hanging disk operation ends Run. Default 20 s,
	// or HangBound if that is longer.
	HangExit time.Duration
	// SnapshotThreshold is after how many log entries a snapshot is taken
	// (looked at every SnapshotInterval), TrailingLogs how many entries are kept
	// at least for servers that come back. Defaults 16384, 30 s, and twice
	// SnapshotThreshold, so that the log usually reaches back to the snapshot
	// before the newest.
	SnapshotThreshold uint64
	SnapshotInterval  time.Duration
	TrailingLogs      uint64
	// SnapshotBytes is after how many bytes of entries a snapshot is taken at
	// once, TrailingBytes how many stay behind it at most, whatever else asks
	// for them. The log on disk has at most their sum, what is written while a
	// snapshot is taken, and two files of 16 MiB. Defaults 64 MiB and 160 MiB.
	SnapshotBytes, TrailingBytes int64

	// Lead is called with each term in which this server leads, after the log of
	// all earlier terms has been applied and the term announced. Its context ends
	// with the role, cause ErrLostLeadership (or the cause of Run's context), and
	// it must then return soon: no later term starts before. When it returns an
	// error before that, leadership is handed to another server, or, with none
	// there, Lead is called again a second later.
	Lead func(ctx context.Context, l *Lead) error
	// OnApply is called after each applied command entry with the events
	// (from, to] that it made, under the write lock of the state: it must be
	// quick, must not block and must not call the Store. It is not called for
	// entries that arrived inside a snapshot; only followers receive those.
	OnApply func(s *state.State, from, to, index uint64)

	// Network, default plain TCP.
	Network Network
	// Certified names the server whose certificate the other end of a connection of
	// Network has shown, for accepted and for dialled ones. Who calls must be the
	// server that it says it is, and in the group: one that is not is told so and
	// sent away, unless no leader has been heard of for long and it might be the
	// leader of a group that has changed meanwhile. Who answers must be the server
	// that was meant. nil: connections have no certificates.
	Certified func(net.Conn) (server string, err error)

	// WrapLog, when set, is given the log before it is used, and returns what
	// is used in its place. It is for tests that make a disk slow or hang: the
	// store's watch over the disk sees whatever it does. Nothing else may be
	// changed by it; a log that loses or alters entries breaks every promise.
	WrapLog func(LogStore) LogStore

	hooks hooks
}

// hooks are for tests of this package.
type hooks struct {
	wrapLog func(logStore) logStore // between the checks of disk.go and the WAL
	vfs     any                     // types.VFS of raft-wal
	// sending is told each request before it goes out.
	sending func(to raft.ServerID, req *raft.AppendEntriesRequest)
	// telling is told the news of commits, which sending is not.
	telling func(to raft.ServerID, req *raft.AppendEntriesRequest)
	// segmentSize of the log's files, if not the usual one.
	segmentSize int
}

// firstWall is the earliest wall clock that is believed.
var firstWall = time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC)

// monotonic is the default Clock.
type monotonic struct{ start time.Time }

func (m monotonic) Now() time.Duration { return time.Since(m.start) }

// withDefaults fills in what is zero and checks the rest.
func (c Config) withDefaults() (Config, error) {
	set := func(d *time.Duration, def time.Duration) {
		if *d == 0 {
			*d = def
		}
	}
	set(&c.ElectionTimeout, 500*time.Millisecond)
	set(&c.CommitTimeout, 50*time.Millisecond)
	set(&c.KeepAliveGather, 20*time.Millisecond)
	set(&c.HangBound, max(2*time.Second, c.ElectionTimeout))
	set(&c.HangExit, max(20*time.Second, c.HangBound))
	set(&c.SnapshotInterval, 30*time.Second)
	if c.SnapshotThreshold == 0 {
		c.SnapshotThreshold = 16384
	}
	if c.TrailingLogs == 0 {
		c.TrailingLogs = 2 * c.SnapshotThreshold
	}
	if c.SnapshotBytes == 0 {
		c.SnapshotBytes = 64 << 20
	}
	if c.TrailingBytes == 0 {
		c.TrailingBytes = 160 << 20
	}
	if c.MaxFeature == 0 {
		c.MaxFeature = state.MaxFeature
	}
	if c.Clock == nil {
		c.Clock = monotonic{time.Now()}
	}
	if c.Wall == nil {
		c.Wall = time.Now
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.Metrics == nil {
		c.Metrics = noObserver{}
	}
	if c.Network == nil {
		c.Network = tcp{}
	}
	return c, c.validate()
}

func (c *Config) validate() error {
	var errs []error
	least := func(field string, got, min time.Duration) {
		if got < min {
			errs = append(errs, fmt.Errorf("%s %v: must be at least %v", field, got, min))
		}
	}
	least("election timeout", c.ElectionTimeout, 50*time.Millisecond)
	least("commit timeout", c.CommitTimeout, time.Millisecond)
	least("keep-alive gather time", c.KeepAliveGather, time.Millisecond)
	least("disk hang bound", c.HangBound, c.ElectionTimeout)
	least("disk hang exit", c.HangExit, c.HangBound)
	least("snapshot interval", c.SnapshotInterval, 5*time.Millisecond)
	if c.SnapshotBytes < 0 || c.TrailingBytes < 0 {
		errs = append(errs, fmt.Errorf("snapshot bytes %d, trailing bytes %d: must not be negative", c.SnapshotBytes, c.TrailingBytes))
	}
	if c.ServerID == "" && c.Dir == "" {
		errs = append(errs, errors.New("server id: must not be empty without a data directory"))
	}
	if len(c.ServerID) > state.MaxNameLen {
		errs = append(errs, fmt.Errorf("server id %.64q: must have at most %d bytes", c.ServerID, state.MaxNameLen))
	}
	if now := c.Wall(); now.Before(firstWall) {
		errs = append(errs, fmt.Errorf("wall clock %s: must be after %s, set the clock of this machine",
			now.UTC().Format(time.RFC3339), firstWall.Format(time.RFC3339)))
	}
	return errors.Join(errs...)
}
