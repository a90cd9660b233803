package raftstore

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// openSnapshots opens the snapshot store and installs the newest snapshot. Raft
// would pass over one that it cannot read and take an older one, and then miss
// the log in between.
func openSnapshots(dir string, logger hclog.Logger, install func(*state.State)) (raft.SnapshotStore, uint64, error) {
	path := filepath.Join(dir, "snapshots")
	if err := checkSnapshotDirs(path); err != nil {
		return nil, 0, err
	}
	store, err := raft.NewFileSnapshotStoreWithLogger(dir, keptSnapshots, logger)
	if err != nil {
		return nil, 0, &StorageError{Op: "open snapshots", Path: path, Err: err}
	}
	list, err := store.List()
	if err != nil {
		return nil, 0, &StorageError{Op: "list snapshots", Path: path, Err: err}
	}
	if len(list) == 0 {
		return store, 0, nil
	}
	newest := list[0]
	st, err := readSnapshot(store, newest)
	if err != nil {
		return nil, 0, &StorageError{Op: "open snapshot", Path: filepath.Join(path, newest.ID), Err: err}
	}
	install(st)
	return store, newest.Index, nil
}

func readSnapshot(store raft.SnapshotStore, meta *raft.SnapshotMeta) (*state.State, error) {
	_, r, err := store.Open(meta.ID) // compares the checksum
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	defer r.Close()
	st, err := state.Restore(bufio.NewReaderSize(r, 1<<20))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	if index, _ := st.Applied(); index > meta.Index {
		return nil, fmt.Errorf("%w: it holds entry %d but says it ends at %d", ErrCorrupt, index, meta.Index)
	}
	return st, nil
}

// checkSnapshotDirs removes what unfinished snapshots left behind, and refuses
// snapshots whose description cannot be read or does not fit their name.
func checkSnapshotDirs(path string) error {
	dirs, err := os.ReadDir(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return &StorageError{Op: "list snapshots", Path: path, Err: err}
	}
	for _, d := range dirs {
		full := filepath.Join(path, d.Name())
		if !d.IsDir() {
			continue
		}
		if strings.HasSuffix(d.Name(), ".tmp") {
			if err := os.RemoveAll(full); err != nil {
				return &StorageError{Op: "remove unfinished snapshot", Path: full, Err: err}
			}
			continue
		}
		var meta raft.SnapshotMeta
		b, err := os.ReadFile(filepath.Join(full, "meta.json"))
		if err == nil {
			err = json.Unmarshal(b, &meta)
		}
		if err == nil && (meta.ID != d.Name() || !strings.HasPrefix(meta.ID, fmt.Sprintf("%d-%d-", meta.Term, meta.Index))) {
			err = fmt.Errorf("meta.json describes snapshot %.64q of term %d, index %d", meta.ID, meta.Term, meta.Index)
		}
		if err != nil {
			return &StorageError{Op: "open snapshot", Path: full, Err: fmt.Errorf("%w: %w", ErrCorrupt, err)}
		}
	}
	return nil
}
