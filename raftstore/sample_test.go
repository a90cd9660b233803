package raftstore

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/leasehold-dev/leasehold/raftstore/state"
)

var update = flag.Bool("update", false, "add a sample of today's data directory to testdata, if there is none of this name")

// sampleNow is the name of the sample that -update makes. A change of what is on
// disk gets a new name here; the old files stay and are opened for ever.
const sampleNow = "data-dir-1.tar.gz"

// Every data directory that was ever written opens: log, snapshots, vote.
func TestSamplesOfTheDataDirectoryOpen(t *testing.T) {
	if *update {
		makeSample(t, filepath.Join("testdata", sampleNow))
	}
	names, err := filepath.Glob("testdata/data-dir-*.tar.gz")
	if err != nil || len(names) == 0 {
		t.Fatalf("samples: %v %v", names, err)
	}
	for _, name := range names {
		t.Run(filepath.Base(name), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				dir := filepath.Join(t.TempDir(), "s1")
				unpack(t, name, dir)
				c := &cluster{t: t, net: newMemNet()}
				s := &server{c: c, id: "s1", addr: "10.0.0.1:7401", dir: dir, conf: func(conf *Config) { conf.Dir = dir }}
				c.servers = append(c.servers, s)
				s.open()
				s.run()
				defer c.stopAll()
				c.do(mark("new"))
				var marks []string
				for i := range sampleMarks {
					marks = append(marks, fmt.Sprintf("m%d", i))
				}
				if gone := missing(s.store, append(marks, "new")); len(gone) > 0 {
					t.Errorf("%d of %d are gone: %v", len(gone), len(marks), gone)
				}
				st := s.store.Storage()
				if st.SnapshotIndex == 0 || st.FirstIndex < 2 || st.LastIndex <= st.SnapshotIndex {
					t.Errorf("neither snapshot nor log: %+v", st)
				}
				s.store.View(func(st *state.State) {
					if ses, ok := st.Session(7); !ok || ses.Worker != "w7" {
						t.Errorf("session: %+v", ses)
					}
				})
				c.check()
			})
		})
	}
}

const sampleMarks = 40

// makeSample writes a small data directory into a file that must not exist.
func makeSample(t *testing.T, path string) {
	t.Helper()
	if _, err := os.Stat(path); err == nil {
		t.Logf("%s is there: a new format needs a new name in sampleNow", path)
		return
	}
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 1, onDisk, smallSegments, func(_ *server, c *Config) {
			c.SnapshotThreshold, c.TrailingLogs, c.SnapshotInterval = 8, 4, 5*time.Millisecond
		})
		c.keyspace("orders", 8, time.Hour)
		c.session(7, "orders")
		for i := range sampleMarks {
			c.do(mark(fmt.Sprintf("m%d", i)))
			time.Sleep(2 * time.Millisecond)
		}
		s := c.servers[0]
		if err := s.halt(); err != nil {
			t.Fatal(err)
		}
		if err := pack(s.dir, path); err != nil {
			t.Fatal(err)
		}
	})
}

func pack(dir, path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	z := gzip.NewWriter(f)
	w := tar.NewWriter(z)
	return errors.Join(w.AddFS(os.DirFS(dir)), w.Close(), z.Close(), f.Close())
}

func unpack(t *testing.T, path, dir string) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	r := tar.NewReader(z)
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		to := filepath.Join(dir, filepath.FromSlash(h.Name))
		if h.Typeflag == tar.TypeDir {
			continue
		}
		b, err := io.ReadAll(r)
		if err == nil {
			err = os.MkdirAll(filepath.Dir(to), 0o700)
		}
		if err != nil {
			t.Fatal(err)
		}
		rewrite(t, to, b)
	}
}
