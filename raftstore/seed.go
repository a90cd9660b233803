package raftstore

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/hashicorp/raft"

	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// Seed writes the data directory of the first server of a new cluster that
// begins with a given state, such as one from a backup. The others are started
// empty and added.
type Seed struct {
	// Dir must not exist, or be empty.
	Dir string
	// ServerID and RaftAddr, as the others reach it, of the server.
	ServerID, RaftAddr string
	// State has been made the first one of a new cluster with state.Rebase.
	State  *state.State
	Logger *slog.Logger // default: none
}

// NotEmptyError refuses to write into a directory in which there is something.
type NotEmptyError struct {
	Dir, Found string
}

// Error names the first thing found.
func (e *NotEmptyError) Error() string {
	return fmt.Sprintf("%s is not empty, it has %s in it", e.Dir, e.Found)
}

// ErrUnfinished refuses to open a directory that Seed was interrupted in.
var ErrUnfinished = errors.New("it was not written to its end: delete the directory and restore again")

// unfinished is there while Seed writes.
const unfinished = "unfinished"

// checkFinished refuses a directory that Seed was interrupted in.
func checkFinished(dir string) error {
	if _, err := os.Lstat(filepath.Join(dir, unfinished)); err == nil {
		return &StorageError{Op: "open data directory", Path: dir, Err: ErrUnfinished}
	}
	return nil
}

// NewClusterID draws an id for a new cluster.
func NewClusterID() string { return newClusterID() }

// Write writes the directory. When it fails, what it had made is removed again,
// and what a power cut leaves of it no server will open.
func (c *Seed) Write() (Peer, error) {
	if c.ServerID == "" || len(c.ServerID) > state.MaxNameLen {
		return Peer{}, fmt.Errorf("server id %.64q: must have 1 to %d bytes", c.ServerID, state.MaxNameLen)
	}
	if err := c.empty(); err != nil {
		return Peer{}, err
	}
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return Peer{}, fmt.Errorf("create data directory: %w", err)
	}
	lock, err := lockDir(c.Dir)
	if err != nil {
		return Peer{}, err
	}
	if err := c.empty(); err != nil { // somebody else was quicker
		return Peer{}, errors.Join(err, lock.release())
	}
	self, err := c.write()
	if err != nil {
		return Peer{}, errors.Join(fmt.Errorf("write data directory: %w", err), c.undo(), lock.release())
	}
	return self, lock.release()
}

// empty refuses a directory with something in it. What a file system puts there
// itself does not count, nor does the lock.
func (c *Seed) empty() error {
	entries, err := os.ReadDir(c.Dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("look at data directory: %w", err)
	}
	for _, e := range entries {
		if e.Name() != "lost+found" && e.Name() != "lock" {
			return &NotEmptyError{Dir: c.Dir, Found: e.Name()}
		}
	}
	return nil
}

// write makes the directory complete before it takes the mark away.
func (c *Seed) write() (self Peer, err error) {
	mark := filepath.Join(c.Dir, unfinished)
	if err := writeSynced(mark, "a restore was interrupted\n"); err != nil {
		return self, err
	}
	if err := privateDirs(c.Dir, newLogAdapter(c.logger(), "raft")); err != nil {
		return self, err
	}
	if _, err := identify(c.Dir, c.ServerID); err != nil {
		return self, err
	}
	self = Peer{ID: c.ServerID, RaftAddr: c.RaftAddr}
	if self.Store, err = storeID(c.Dir); err != nil {
		return self, err
	}
	if err := c.writeTerm(); err != nil {
		return self, err
	}
	if err := c.writeSnapshot(self); err != nil {
		return self, err
	}
	if err := os.Remove(mark); err != nil {
		return self, err
	}
	return self, errors.Join(syncDir(c.Dir), syncDir(filepath.Dir(c.Dir)))
}

func syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

func (c *Seed) logger() *slog.Logger {
	if c.Logger == nil {
		return slog.New(slog.DiscardHandler)
	}
	return c.Logger
}

// writeTerm makes an empty log that knows the term: no entry may have a lower
// one than the snapshot before it.
func (c *Seed) writeTerm() error {
	log, err := openWAL(filepath.Join(c.Dir, "log"), &Config{}, newLogAdapter(c.logger(), "raft"))
	if err != nil {
		return err
	}
	_, term := c.State.Applied()
	return errors.Join(log.SetUint64([]byte("CurrentTerm"), term), log.Close())
}

// writeSnapshot writes the state with a configuration of this server alone.
func (c *Seed) writeSnapshot(self Peer) error {
	store, err := raft.NewFileSnapshotStoreWithLogger(c.Dir, keptSnapshots, newLogAdapter(c.logger(), "raft"))
	if err != nil {
		return err
	}
	index, term := c.State.Applied()
	conf := raft.Configuration{Servers: []raft.Server{{Suffrage: raft.Voter, ID: self.raftID(), Address: self.raftAddress()}}}
	_, nowhere := raft.NewInmemTransport(self.raftAddress()) // encodes addresses, no more
	sink, err := store.Create(raft.SnapshotVersionMax, index, term, conf, index, nowhere)
	if err != nil {
		return err
	}
	w := bufio.NewWriterSize(sink, 1<<20)
	if err := errors.Join(c.State.Snapshot().Write(w), w.Flush()); err != nil {
		return errors.Join(err, sink.Cancel())
	}
	return sink.Close()
}

// undo removes what write has made. The directory itself was perhaps there
// before.
func (c *Seed) undo() error {
	var errs []error
	for _, name := range []string{"snapshots", "log", "server-id", "store-id", "lock", "server-id.tmp", "store-id.tmp", unfinished + ".tmp", unfinished} {
		errs = append(errs, os.RemoveAll(filepath.Join(c.Dir, name)))
	}
	return errors.Join(errs...)
}
