package raftstore

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hashicorp/raft"
	wal "github.com/hashicorp/raft-wal"

	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// Salvage is what the data directory of a stopped server holds.
type Salvage struct {
	ServerID, StoreID string
	// State after the newest snapshot that can be read and every log entry that
	// follows it without a gap, whether a majority had it or not.
	State *state.State
	// Index and Term of the last of these entries, also of one that changes
	// nothing. Of several survivors, the one with the higher term, then the
	// higher index, has everything that was acknowledged.
	Index, Term uint64
	// SnapshotIndex is where the snapshot ends, 0 if there is none; Entries is
	// how many log entries were replayed on top.
	SnapshotIndex uint64
	Entries       int
	// Missing says what could not be read, in words for a person.
	Missing []string
}

// ErrNoState says that a data directory has neither snapshot nor log.
var ErrNoState = errors.New("no snapshot and no log: this server has never been part of a cluster")

// ReadDir reads the data directory of a stopped server and changes nothing in
// it, so that it can be on a disk that takes no more writes. It refuses one
// that a process has open, with an *InUseError, and takes what it can get of a
// damaged one, unlike New, which refuses to serve from it.
func ReadDir(dir string) (*Salvage, error) {
	if _, err := os.Stat(dir); err != nil {
		return nil, fmt.Errorf("read data directory: %w", err)
	}
	lock, err := lockDirForReading(dir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = lock.release() }() // nothing was written under it
	if err := checkFinished(dir); err != nil {
		return nil, err
	}
	v := &Salvage{ServerID: StoredID(dir), StoreID: storedStoreID(dir), State: state.New()}
	snapshots, err := v.readSnapshots(filepath.Join(dir, "snapshots"))
	if err != nil {
		return nil, err
	}
	entries, err := v.readLog(filepath.Join(dir, "log"))
	if err != nil {
		return nil, err
	}
	if snapshots == 0 && entries == nil {
		return nil, fmt.Errorf("read data directory %s: %w", dir, ErrNoState)
	}
	v.replay(entries)
	return v, nil
}

func (v *Salvage) miss(format string, args ...any) {
	v.Missing = append(v.Missing, fmt.Sprintf(format, args...))
}

// storedStoreID is "" where there is none.
func storedStoreID(dir string) string {
	b, err := os.ReadFile(filepath.Join(dir, "store-id"))
	if err != nil {
		return ""
	}
	return strings.TrimSuffix(string(b), "\n")
}

// readSnapshots takes the newest snapshot that can be read and says how many
// there are.
func (v *Salvage) readSnapshots(path string) (int, error) {
	dirs, err := os.ReadDir(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, fmt.Errorf("read snapshots: %w", err)
	}
	var metas []raft.SnapshotMeta
	n := 0
	for _, d := range dirs {
		if !d.IsDir() || strings.HasSuffix(d.Name(), ".tmp") {
			continue
		}
		n++
		var m raft.SnapshotMeta
		b, err := os.ReadFile(filepath.Join(path, d.Name(), "meta.json"))
		if err == nil {
			err = json.Unmarshal(b, &m)
		}
		if err == nil && m.ID != d.Name() {
			err = fmt.Errorf("it describes %.64q", m.ID)
		}
		if err != nil {
			v.miss("snapshot %s: %v", d.Name(), err)
			continue
		}
		metas = append(metas, m)
	}
	slices.SortFunc(metas, func(a, b raft.SnapshotMeta) int { // newest first
		return cmp.Or(cmp.Compare(b.Index, a.Index), cmp.Compare(b.Term, a.Term), strings.Compare(b.ID, a.ID))
	})
	for _, m := range metas {
		s, err := readState(filepath.Join(path, m.ID, "state.bin"), m.Index)
		if err != nil {
			v.miss("snapshot %s: %v", m.ID, err)
			continue
		}
		v.State, v.SnapshotIndex, v.Index, v.Term = s, m.Index, m.Index, m.Term
		break
	}
	return n, nil
}

func readState(path string, index uint64) (*state.State, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	s, err := state.Restore(f)
	if err != nil {
		return nil, err
	}
	if at, _ := s.Applied(); at > index {
		return nil, fmt.Errorf("it holds entry %d but says it ends at %d", at, index)
	}
	return s, nil
}

// readLog reads all entries that can be read, by index. Each segment replaces
// what older ones have from its first entry on: Raft had taken that back.
func (v *Salvage) readLog(path string) (map[uint64]*raft.Log, error) {
	names, err := filepath.Glob(filepath.Join(path, "*.wal"))
	if err != nil || len(names) == 0 {
		return nil, err
	}
	type segmentFile struct {
		name     string
		base, id uint64
	}
	var files []segmentFile
	for _, n := range names {
		f := segmentFile{name: n}
		if _, err := fmt.Sscanf(filepath.Base(n), "%020d-%016x.wal", &f.base, &f.id); err == nil {
			files = append(files, f)
		}
	}
	slices.SortFunc(files, func(a, b segmentFile) int { return cmp.Compare(a.id, b.id) })
	entries := make(map[uint64]*raft.Log)
	for _, f := range files {
		b, err := os.ReadFile(f.name)
		if err != nil {
			v.miss("log file %s: %v", filepath.Base(f.name), err)
			continue
		}
		read, err := readSegment(b, f.base)
		if err != nil {
			v.miss("log file %s: %v", filepath.Base(f.name), err)
		}
		for i := f.base; entries[i] != nil; i++ {
			delete(entries, i)
		}
		for _, l := range read {
			entries[l.Index] = l
		}
	}
	return entries, nil
}

// readSegment returns the entries of the whole batches at the front of a
// segment, and an error if something unreadable follows that was whole once.
func readSegment(b []byte, base uint64) (read []*raft.Log, err error) {
	all, _ := walBatches(b)
	end := walHeader
	for _, batch := range all {
		if !batchWhole(b, batch.start, batch.commit) {
			break
		}
		for at := max(batch.start, walHeader); at < batch.commit; {
			n := int(binary.LittleEndian.Uint32(b[at+4:]))
			if b[at] == walEntry {
				l := new(raft.Log)
				err := (&wal.BinaryCodec{}).Decode(bytes.Clone(b[at+walWord:at+walWord+n]), l)
				if err == nil {
					err = checkSum(base+uint64(len(read)), l)
				}
				if err != nil {
					return read, fmt.Errorf("entry %d: %w", base+uint64(len(read)), err)
				}
				read = append(read, l)
			}
			at += walWord + (n+walWord-1)/walWord*walWord
		}
		end = batch.commit + walWord
	}
	if at, found := batchAfter(b, end); found {
		return read, fmt.Errorf("unreadable between bytes %d and %d, but whole after that", end, at)
	}
	return read, nil
}

// replay applies the entries that follow the snapshot.
func (v *Salvage) replay(entries map[uint64]*raft.Log) {
	for l := entries[v.Index+1]; l != nil; l = entries[v.Index+1] {
		if l.Type == raft.LogCommand && len(l.Data) > 0 {
			b, err := state.DecodeBatch(l.Data)
			if err != nil {
				v.miss("log entry %d and what follows: %v", l.Index, err)
				return
			}
			if done, _ := v.State.Applied(); l.Index > done {
				v.State.Apply(l.Index, l.Term, b)
			}
		}
		v.Index, v.Term = l.Index, l.Term
		v.Entries++
	}
	last := uint64(0)
	for i := range entries {
		last = max(last, i)
	}
	if last > v.Index {
		v.miss("log entries %d to %d: those before them are missing", v.Index+1, last)
	}
}
