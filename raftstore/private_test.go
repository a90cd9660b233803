package raftstore

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// wantPrivate walks a data directory as another user could: whatever can be reached
// must be closed to them.
func wantPrivate(t *testing.T, dir, what string) {
	t.Helper()
	seen := 0
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == dir { // which was there before, and is not ours to change
			return err
		}
		seen++
		info, err := d.Info()
		if err != nil {
			return err
		}
		if info.Mode().Perm()&0o077 != 0 {
			rel, _ := filepath.Rel(dir, path)
			t.Errorf("%s: %s has mode %v, open to others", what, rel, info.Mode())
		}
		if d.IsDir() {
			return fs.SkipDir // nobody else comes further
		}
		return nil
	})
	if err != nil || seen < 4 {
		t.Errorf("%s: looked at %d files in %s, %v", what, seen, dir, err)
	}
}

// A data directory that is open to everybody, as mkdir and volumes of containers
// make it: nobody else reads log or snapshots, which have the keys of gossip.
func TestOpenDirectoryKeepsItsSecrets(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s, dirs, marks := snapshotted(t)
		for _, name := range []string{".", "log", "snapshots"} { // one of an older version
			if err := os.Chmod(filepath.Join(s.dir, name), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		st := saved(t, s)
		damage(t, filepath.Join(dirs[0], "state.bin"))
		reopenWith(t, s, marks)
		aside, err := filepath.Glob(filepath.Join(s.dir, "snapshot-*.damaged"))
		if err != nil || len(aside) != 1 {
			t.Fatalf("set aside: %v, %v", aside, err)
		}
		wantPrivate(t, s.dir, "opened")

		dir := t.TempDir()
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if _, err := (&Seed{Dir: dir, ServerID: "n1", RaftAddr: "10.0.1.1:7401", State: st}).Write(); err != nil {
			t.Fatal(err)
		}
		wantPrivate(t, dir, "restored")
	})
}
