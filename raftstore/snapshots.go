package raftstore

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// snapshotStore is Raft's store of snapshots, watched. In memory there is one
// snapshot, on disk there are two.
type snapshotStore struct {
	raft.SnapshotStore
	path   string // "" in memory
	retain *retention
	failed func() // counts a snapshot that could not be written
	log    hclog.Logger

	mu   sync.Mutex
	kept []snapshotInfo // newest first
}

// snapshotInfo is a snapshot that is there.
type snapshotInfo struct {
	index uint64
	size  int64
	at    time.Time
}

// newest returns the newest snapshot; the zero value if there is none.
func (s *snapshotStore) newest() snapshotInfo {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.kept) == 0 {
		return snapshotInfo{}
	}
	return s.kept[0]
}

// look lists what is there.
func (s *snapshotStore) look() error {
	list, err := s.List()
	if err != nil {
		return fmt.Errorf("list snapshots: %w", err)
	}
	var kept []snapshotInfo
	var ends []uint64
	for _, m := range list {
		info := snapshotInfo{index: m.Index, size: m.Size, at: time.Now()}
		if name, err := parseSnapshotName(m.ID); err == nil {
			info.at = name.at
		}
		kept, ends = append(kept, info), append(ends, m.Index)
	}
	s.mu.Lock()
	s.kept = kept
	s.mu.Unlock()
	s.retain.snapshots(ends)
	return nil
}

// Create begins a snapshot of this server's own or one from the leader.
func (s *snapshotStore) Create(v raft.SnapshotVersion, index, term uint64, c raft.Configuration, at uint64, t raft.Transport) (raft.SnapshotSink, error) {
	sink, err := s.SnapshotStore.Create(v, index, term, c, at, t)
	if err != nil {
		s.failed()
		return nil, err
	}
	return &snapshotSink{SnapshotSink: sink, s: s}, nil
}

// snapshotSink is a snapshot in the making.
type snapshotSink struct {
	raft.SnapshotSink
	s    *snapshotStore
	once sync.Once
}

// Close returns when the snapshot is on disk.
func (k *snapshotSink) Close() (err error) {
	err = k.SnapshotSink.Close()
	if err != nil {
		k.once.Do(k.s.failed)
		return err
	}
	k.once.Do(func() {
		if k.s.path != "" {
			if serr := writeMetaSum(filepath.Join(k.s.path, k.ID())); serr != nil {
				k.s.log.Warn("checksum of a snapshot's description was not written", "error", serr)
			}
		}
		if lerr := k.s.look(); lerr != nil {
			k.s.log.Warn("snapshots were not listed", "error", lerr)
		}
	})
	return nil
}

// snapshotName is the name of a snapshot: TERM-INDEX-MILLISECONDS.
type snapshotName struct {
	id          string
	term, index uint64
	at          time.Time
}

func parseSnapshotName(id string) (snapshotName, error) {
	n := snapshotName{id: id}
	var ms int64
	if _, err := fmt.Sscanf(id, "%d-%d-%d", &n.term, &n.index, &ms); err != nil || id != fmt.Sprintf("%d-%d-%d", n.term, n.index, ms) {
		return n, fmt.Errorf("%.64q is not the name of a snapshot", id)
	}
	n.at = time.UnixMilli(ms)
	return n, nil
}

// openSnapshots opens the snapshots beside a log of the entries first to last
// and installs the newest. Raft would pass over one that it cannot read, and
// then miss the log in between.
func (f *files) openSnapshots(c *Config, logger hclog.Logger, s *Store, first, last uint64) (err error) {
	path := f.path("snapshots")
	names, err := snapshotNames(path)
	if err != nil {
		return err
	}
	store, err := raft.NewFileSnapshotStoreWithLogger(f.dir, keptSnapshots, logger)
	if err != nil {
		return &StorageError{Op: "open snapshots", Path: path, Err: err}
	}
	f.snaps = &snapshotStore{SnapshotStore: store, path: path, retain: s.retain, failed: c.Metrics.SnapshotFailed, log: logger}
	var damaged []snapshotName
	var damage error // of the newest
	for i, n := range names {
		st, err := readSnapshot(store, path, n)
		if err == nil {
			if err := bridge(n.index, damaged, damage, path, first, last); err != nil {
				return err
			}
			s.install(st)
			raise(&s.seenIndex, n.index)
			f.snapIndex = n.index
			// What is older is not needed, but Raft must not stumble over it.
			for _, o := range names[i+1:] {
				if err := checkMeta(path, o); err != nil {
					logger.Warn("older snapshot is damaged", "snapshot", o.id, "error", err)
					damaged = append(damaged, o)
				}
			}
			return errors.Join(f.setAside(damaged, logger), f.snaps.look())
		}
		var failed *fs.PathError
		if errors.As(err, &failed) && !errors.Is(err, fs.ErrNotExist) {
			return &StorageError{Op: "open snapshot", Path: filepath.Join(path, n.id), Err: err}
		}
		logger.Error("snapshot is damaged", "snapshot", n.id, "error", err)
		damage = cmp.Or(damage, err)
		damaged = append(damaged, n)
	}
	if err := bridge(0, damaged, damage, path, first, last); err != nil {
		return err
	}
	return errors.Join(f.setAside(damaged, logger), f.snaps.look())
}

// bridge refuses to do without the newest snapshots, which are damaged, unless
// the log leads from the end of an older one, or from the very beginning, to
// theirs.
func bridge(from uint64, damaged []snapshotName, damage error, path string, first, last uint64) error {
	if len(damaged) == 0 {
		return nil
	}
	end := damaged[0].index
	if last >= end && first > 0 && first <= from+1 {
		return nil
	}
	return &StorageError{Op: "open snapshot", Path: filepath.Join(path, damaged[0].id), Err: fmt.Errorf(
		"%w: %w; the entries %d to %d that it stands for are not all in the log, which has %d to %d",
		ErrCorrupt, damage, from+1, end, first, last)}
}

// setAside takes damaged snapshots out of Raft's sight; somebody may want to
// look at them.
func (f *files) setAside(damaged []snapshotName, logger hclog.Logger) error {
	for _, n := range damaged {
		from, to := filepath.Join(f.path("snapshots"), n.id), f.path("snapshot-"+n.id+".damaged")
		if err := makePrivate(from); err != nil { // there it has no private directory above it
			logger.Warn("others on this machine may be able to read the data", "path", to, "error", err)
		}
		if err := errors.Join(os.RemoveAll(to), os.Rename(from, to)); err != nil {
			return &StorageError{Op: "set damaged snapshot aside", Path: from, Err: err}
		}
		logger.Warn("damaged snapshot is set aside, the log makes up for it", "snapshot", n.id, "path", to)
	}
	return nil
}

func readSnapshot(store raft.SnapshotStore, path string, n snapshotName) (*state.State, error) {
	if err := checkMeta(path, n); err != nil {
		return nil, err
	}
	meta, r, err := store.Open(n.id) // compares the checksum
	if err != nil {
		return nil, err
	}
	defer r.Close()
	st, err := state.Restore(bufio.NewReaderSize(r, 1<<20))
	if err != nil {
		return nil, err
	}
	if index, _ := st.Applied(); index > meta.Index {
		return nil, fmt.Errorf("it holds entry %d but says it ends at %d", index, meta.Index)
	}
	return st, nil
}

// snapshotNames lists the snapshots, newest first, after removing what
// unfinished ones left behind.
func snapshotNames(path string) ([]snapshotName, error) {
	dirs, err := os.ReadDir(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, &StorageError{Op: "list snapshots", Path: path, Err: err}
	}
	var names []snapshotName
	for _, d := range dirs {
		full := filepath.Join(path, d.Name())
		if !d.IsDir() {
			continue
		}
		if strings.HasSuffix(d.Name(), ".tmp") {
			if err := os.RemoveAll(full); err != nil {
				return nil, &StorageError{Op: "remove unfinished snapshot", Path: full, Err: err}
			}
			continue
		}
		n, err := parseSnapshotName(d.Name())
		if err != nil {
			return nil, &StorageError{Op: "open snapshot", Path: full, Err: fmt.Errorf("%w: %w", ErrCorrupt, err)}
		}
		names = append(names, n)
	}
	slices.SortFunc(names, func(a, b snapshotName) int { // as Raft does
		return cmp.Or(cmp.Compare(b.term, a.term), cmp.Compare(b.index, a.index), strings.Compare(b.id, a.id))
	})
	return names, nil
}

// metaSum holds the checksum of meta.json, which Raft's store has none for: a
// flipped bit there is another configuration of the group. A crash between the
// two leaves a snapshot without it; the next start adds it.
const metaSum = "meta.sum"

func checkMeta(path string, n snapshotName) error {
	dir := filepath.Join(path, n.id)
	b, err := os.ReadFile(filepath.Join(dir, "meta.json"))
	if err != nil {
		return err
	}
	sum, err := os.ReadFile(filepath.Join(dir, metaSum))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err == nil && string(sum) != sumLine(b) {
		return errors.New("meta.json does not have its checksum")
	}
	var meta raft.SnapshotMeta
	if err := json.Unmarshal(b, &meta); err != nil {
		return fmt.Errorf("meta.json: %w", err)
	}
	if meta.ID != n.id || meta.Term != n.term || meta.Index != n.index {
		return fmt.Errorf("meta.json describes snapshot %.64q of term %d, index %d", meta.ID, meta.Term, meta.Index)
	}
	if sum == nil {
		return writeMetaSum(dir)
	}
	return nil
}

func writeMetaSum(dir string) error {
	b, err := os.ReadFile(filepath.Join(dir, "meta.json"))
	if err != nil {
		return err
	}
	return writeSynced(filepath.Join(dir, metaSum), sumLine(b))
}

func sumLine(b []byte) string { return fmt.Sprintf("%08x\n", crc32.Checksum(b, castagnoli)) }
