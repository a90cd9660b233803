package raftstore

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// ClusterID names the cluster that this server belongs to; empty until that is
// known.
func (s *Store) ClusterID() string {
	if id := s.cluster.Load(); id != nil {
		return *id
	}
	return ""
}

// StoredClusterID returns the cluster that a data directory belongs to, or ""
// for one that belongs to none yet.
func StoredClusterID(dir string) string {
	if dir == "" {
		return ""
	}
	id, err := readClusterID(dir)
	if err != nil {
		return "" // New says what is wrong
	}
	return id
}

func readClusterID(dir string) (string, error) {
	b, err := os.ReadFile(filepath.Join(dir, clusterIDFile))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read cluster id: %w", err)
	}
	return strings.TrimSuffix(string(b), "\n"), nil
}

const clusterIDFile = "cluster-id"

// openClusterID reads the cluster that the directory belongs to. A directory
// that belongs to one has voted in it: without its log and its vote it must not
// take part under the name that it had then.
func (s *Store) openClusterID() error {
	if s.files.dir == "" {
		return nil
	}
	id, err := readClusterID(s.files.dir)
	if err != nil {
		return err
	}
	if id != "" {
		s.cluster.Store(&id)
		if term, err := s.files.log.GetUint64([]byte("CurrentTerm")); err != nil || term == 0 {
			return &StorageError{Op: "open log", Path: s.files.path("log"), Err: fmt.Errorf(
				"%w: the directory belongs to cluster %s, but its log and its vote are gone; empty the whole directory, the server then comes back as a new one",
				ErrCorrupt, id)}
		}
	}
	return s.learnCluster()
}

// learnCluster stores the cluster's id as soon as the state has it, so that it
// is known at the next start before anything has been applied.
func (s *Store) learnCluster() error {
	var id string
	s.View(func(st *state.State) { id = st.ClusterID() })
	stored := s.ClusterID()
	switch {
	case id == "" || id == stored:
		return nil
	case stored != "":
		return &StorageError{Op: "apply entry", Path: s.files.path("log"), Err: fmt.Errorf(
			"%w: it is the log of cluster %s, but the directory belongs to cluster %s", ErrCorrupt, id, stored)}
	}
	if s.files.dir != "" {
		path := s.files.path(clusterIDFile)
		if err := writeSynced(path, id+"\n"); err != nil {
			return &StorageError{Op: "write cluster id", Path: path, Err: err}
		}
	}
	s.cluster.Store(&id)
	return nil
}
