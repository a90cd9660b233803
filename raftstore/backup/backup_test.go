package backup

import (
	"bytes"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/leasehold-dev/leasehold/raftstore/mvcc"
	"github.com/leasehold-dev/leasehold/raftstore/state"
)

var update = flag.Bool("update", false, "write files of testdata that are missing")

// example is a state with something of everything.
func example(t testing.TB, partitions uint32) *state.State {
	t.Helper()
	s := state.New()
	index := uint64(0)
	do := func(cs ...state.Command) {
		index++
		for i, r := range s.Apply(index, 3, &state.Batch{Wall: time.UnixMilli(int64(index) * 1000), Commands: cs}) {
			if r.Err != nil || r.Items != nil {
				t.Fatalf("%T: %v %v", cs[i], r.Err, r.Items)
			}
		}
	}
	do(&state.Announce{Term: 3, Server: state.Server{ID: "s1", RaftAddr: "10.0.0.1:7401"}}, &state.Bootstrap{ClusterID: "c0ffee", FirstToken: 1 << 40})
	do(&state.CreateKeyspace{Name: "orders", Partitions: partitions, Settings: state.Settings{TTL: 10 * time.Second, Takeover: state.Strict}})
	do(&state.CreateKeyspace{Name: "jobs", Partitions: 4, Settings: state.Settings{TTL: 3 * time.Second, Takeover: state.Fenced}})
	for i := range state.SessionID(3) {
		do(&state.OpenSession{Session: 100 + i, Worker: fmt.Sprintf("w%d", i), Keyspaces: []string{"orders", "jobs"}})
	}
	g := &state.Grant{Term: 3, Keyspace: 1, Cause: state.CauseInitial}
	for p := range min(partitions, 1000) {
		g.Items = append(g.Items, state.GrantItem{Partition: p, Session: 100 + state.SessionID(p%3)})
	}
	do(g, &state.BarWorker{Worker: "w2", Drained: true})
	return s
}

// keyed is example with keys of sessions and of none.
func keyed(t testing.TB) *state.State { return keyedWith(t, 700_000) }

// keyedWith has a value of so many bytes.
func keyedWith(t testing.TB, bytes int) *state.State {
	t.Helper()
	s := example(t, 16)
	index, term := s.Applied()
	do := func(c state.Command) {
		t.Helper()
		index++
		if r := s.Apply(index, term, &state.Batch{Commands: []state.Command{c}}); r[0].Err != nil {
			t.Fatalf("%T: %v", c, r[0].Err)
		}
	}
	do(&state.RaiseFeature{Term: term, Level: 2})
	do(&state.GrantLease{Session: 7, TTL: 60})
	do(&state.Enqueue{Name: []byte("jobs"), Session: 7})
	do(&state.Sequence{Prefix: []byte("s/")})
	do(&state.Transact{Txn: mvcc.Txn{Success: []mvcc.Op{{Put: &mvcc.PutOp{Key: []byte("k"), Value: make([]byte, bytes)}}}}})
	return s
}

// The manifest tells of keys where there are any, and of none in the file of a
// cluster that has none.
func TestBackupCountsKeys(t *testing.T) {
	s := keyed(t)
	file := fileOf(t, s)
	back, m, err := Load(bytes.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(snapshotOf(t, back), snapshotOf(t, s)) {
		t.Error("the state came back different")
	}
	if k := m.Keys; k == nil || k.Count != 3 || k.Revision != 4 || k.Bytes < 700_000 || k.Sequences != 1 || m.LongestTTLMillis != 10_000 {
		t.Errorf("keys %+v, longest TTL %d ms", k, m.LongestTTLMillis)
	}
	if bytes.Contains(fileOf(t, example(t, 16)), []byte(`"keys"`)) {
		t.Error("keys are told of where there are none")
	}
	for name, change := range map[string]func(*Manifest){
		"none":         func(m *Manifest) { m.Keys = nil },
		"one too many": func(m *Manifest) { m.Keys.Count++ },
		"later":        func(m *Manifest) { m.Keys.Revision++ },
	} {
		m := Describe(s)
		change(&m)
		var b bytes.Buffer
		if _, err := Write(&b, m, s.Snapshot()); err != nil {
			t.Fatal(err)
		}
		if _, _, err := Load(&b); !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), "keys") {
			t.Errorf("%s: %v", name, err)
		}
	}
	// What another release makes of the bytes is its own affair.
	m = Describe(s)
	m.Keys.Bytes *= 2
	var b bytes.Buffer
	if _, err := Write(&b, m, s.Snapshot()); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Load(&b); err != nil {
		t.Error(err)
	}
}

func fileOf(t testing.TB, s *state.State) []byte {
	t.Helper()
	m := Describe(s)
	m.Version, m.ServerID, m.Time = "v0.1.0", "s1", time.Date(2026, 11, 30, 1, 2, 3, 0, time.UTC)
	snap := s.Snapshot()
	size, err := Size(m, snap)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	n, err := Write(&b, m, snap)
	if err != nil || n != int64(b.Len()) || size != n {
		t.Fatalf("wrote %d bytes, says %d, foretold %d: %v", b.Len(), n, size, err)
	}
	return b.Bytes()
}

func snapshotOf(t testing.TB, s *state.State) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := s.Snapshot().Write(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestBackupReadsBackAll(t *testing.T) {
	for _, partitions := range []uint32{1, 16, 100_000} { // the last takes several blocks
		s := example(t, partitions)
		file := fileOf(t, s)
		back, m, err := Load(iotest.HalfReader(bytes.NewReader(file)))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(snapshotOf(t, back), snapshotOf(t, s)) {
			t.Error("the state came back different")
		}
		if m.ClusterID != "c0ffee" || m.Counts.Partitions != int(partitions)+4 || m.Counts.Sessions != 3 || m.LongestTTLMillis < 10_000 || m.LastToken != s.LastToken() {
			t.Errorf("manifest %+v", m)
		}
		if _, err := Check(iotest.OneByteReader(bytes.NewReader(file[:min(len(file), 1<<12)]))); (err == nil) != (len(file) <= 1<<12) {
			t.Errorf("check of a part: %v", err)
		}
	}
}

// Whatever is missing at the end, the reader names where.
func TestTruncatedBackupIsRefused(t *testing.T) {
	file := fileOf(t, example(t, 64))
	for n := range file {
		_, _, err := Load(bytes.NewReader(file[:n]))
		var damaged *DamagedError
		if !errors.As(err, &damaged) || damaged.Offset != int64(n) {
			t.Fatalf("the first %d of %d bytes: %v", n, len(file), err)
		}
		if _, err := Check(bytes.NewReader(file[:n])); !errors.Is(err, ErrDamaged) {
			t.Fatalf("check of the first %d of %d bytes: %v", n, len(file), err)
		}
	}
	if _, err := Check(bytes.NewReader(append(slices.Clone(file), 0))); !errors.Is(err, ErrDamaged) {
		t.Errorf("a byte too many: %v", err)
	}
}

// Check looks at the sums alone, so it is they that notice, not the state.
func TestBitFlippedBackupIsRefused(t *testing.T) {
	file := fileOf(t, example(t, 64))
	for i := range file {
		bit := byte(1) << (i * 5 % 8)
		file[i] ^= bit
		_, err := Check(bytes.NewReader(file))
		var version *VersionError
		if !errors.Is(err, ErrDamaged) && !(i == len(magic) && errors.As(err, &version)) {
			t.Fatalf("bit %d of byte %d: %v", bit, i, err)
		}
		file[i] ^= bit
	}
}

// The offset is that of the block with the flipped bit, not of the end.
func TestDamageIsNamedWithItsPlace(t *testing.T) {
	file := fileOf(t, example(t, 200_000))
	if len(file) < 3*maxBlock {
		t.Fatalf("%d bytes are too few blocks", len(file))
	}
	at := 2 * maxBlock
	file[at] ^= 4
	r, err := NewReader(bytes.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	n, err := io.Copy(io.Discard, r)
	handed := int(n)
	var damaged *DamagedError
	if !errors.As(err, &damaged) || damaged.Offset > int64(at) || damaged.Offset < int64(at-maxBlock-partHead) {
		t.Errorf("bit of byte %d: %v", at, err)
	}
	if handed%maxBlock != 0 || handed > at {
		t.Errorf("%d bytes were handed out, some of them of the bad block", handed)
	}
}

// A file whose sums were made to fit a wrong manifest is not believed.
func TestManifestMustAgreeWithTheState(t *testing.T) {
	s := example(t, 16)
	for name, change := range map[string]func(*Manifest){
		"cluster_id": func(m *Manifest) { m.ClusterID = "other" },
		"last_token": func(m *Manifest) { m.LastToken-- },
		"revision":   func(m *Manifest) { m.Revision-- },
		"counts":     func(m *Manifest) { m.Counts.Leases++ },
		"index":      func(m *Manifest) { m.Index-- },
	} {
		m := Describe(s)
		change(&m)
		var b bytes.Buffer
		if _, err := Write(&b, m, s.Snapshot()); err != nil {
			t.Fatal(err)
		}
		if _, _, err := Load(&b); !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestErrorsOfReaderAndWriterPassThrough(t *testing.T) {
	broken := errors.New("disk is gone")
	s := example(t, 100_000)
	file := fileOf(t, s)
	for _, n := range []int{0, 5, 100, maxBlock, len(file) - 1, len(file)} {
		r := io.MultiReader(bytes.NewReader(file[:n]), iotest.ErrReader(broken))
		if _, _, err := Load(r); !errors.Is(err, broken) || errors.Is(err, ErrDamaged) {
			t.Errorf("after %d bytes: %v", n, err)
		}
	}
	for n := range 6 {
		if _, err := Write(&failing{after: n, err: broken}, Describe(s), s.Snapshot()); !errors.Is(err, broken) {
			t.Errorf("write number %d: %v", n, err)
		}
	}
}

type failing struct {
	after int
	err   error
}

func (w *failing) Write(p []byte) (int, error) {
	if w.after == 0 {
		return 0, w.err
	}
	w.after--
	return len(p), nil
}

// Neither side holds more than a few blocks, whatever the size.
func TestBackupStreams(t *testing.T) {
	s := example(t, 1<<20)
	m, snap := Describe(s), s.Snapshot()
	size, err := Size(m, snap)
	if err != nil {
		t.Fatal(err)
	}
	spent := func(f func()) uint64 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		f()
		runtime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc
	}
	r, w := io.Pipe()
	all := spent(func() {
		go func() {
			_, err := Write(w, m, snap)
			w.CloseWithError(err)
		}()
		if _, err := Check(r); err != nil {
			t.Error(err)
		}
	})
	if limit := uint64(3 << 20); size < int64(limit) || all > limit {
		t.Errorf("%d bytes were allocated to write and read %d", all, size)
	}
}

// TestGoldenFormat opens what version 1 wrote, without keys and with them. A file
// is never rewritten: a new format gets a new one beside it.
func TestGoldenFormat(t *testing.T) {
	at := time.Date(2026, 11, 30, 1, 2, 3, 0, time.UTC)
	for name, c := range map[string]struct {
		state *state.State
		want  Manifest
		keys  Keys
	}{
		"testdata/backup.v1": {example(t, 16), Manifest{
			Format: 1, Version: "v0.1.0", ClusterID: "c0ffee", ServerID: "s1", Index: 7, Term: 3,
			Time: at, FeatureLevel: 1, LastToken: 1<<40 + 15, Revision: 23,
			LongestTTLMillis: 10_000, Counts: Counts{Keyspaces: 2, Partitions: 20, Leases: 16, Sessions: 3, Workers: 3},
		}, Keys{}},
		"testdata/backup.v1-keys": {keyedWith(t, 100), Manifest{
			Format: 1, Version: "v0.1.0", ClusterID: "c0ffee", ServerID: "s1", Index: 12, Term: 3,
			Time: at, FeatureLevel: 2, LastToken: 1<<40 + 16, Revision: 24,
			LongestTTLMillis: 10_000, Counts: Counts{Keyspaces: 2, Partitions: 20, Leases: 16, Sessions: 4, Workers: 3},
		}, Keys{Count: 3, Revision: 4, Sequences: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			file, err := os.ReadFile(name)
			if errors.Is(err, os.ErrNotExist) && *update {
				file = fileOf(t, c.state)
				err = errors.Join(os.MkdirAll("testdata", 0o755), os.WriteFile(name, file, 0o644))
			}
			if err != nil {
				t.Fatal(err)
			}
			s, m, err := Load(bytes.NewReader(file))
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(snapshotOf(t, s), snapshotOf(t, c.state)) {
				t.Error("the state reads differently")
			}
			if k := m.Keys.facts(); k != c.keys {
				t.Errorf("the manifest tells of keys %+v, want %+v", k, c.keys)
			}
			if m.Keys = nil; m != c.want {
				t.Errorf("the manifest reads as\n%+v, want\n%+v", m, c.want)
			}
		})
	}
}

func TestNewerFormatIsRefusedByName(t *testing.T) {
	file := fileOf(t, example(t, 1))
	file[len(magic)] = 2
	_, _, err := Load(bytes.NewReader(file))
	if err == nil || !strings.Contains(err.Error(), "format 2") || !strings.Contains(err.Error(), "newer release") {
		t.Error(err)
	}
}

// FuzzLoad: any input is refused, or gives a state that holds every invariant
// and can be written again.
func FuzzLoad(f *testing.F) {
	file := fileOf(f, example(f, 16))
	f.Add(file)
	f.Add(file[:headSize+partHead+40])
	f.Add([]byte(magic))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, input := range [][]byte{data, resum(data)} {
			s, _, err := Load(bytes.NewReader(input))
			_, sums := Check(bytes.NewReader(input))
			if err != nil {
				continue
			}
			if sums != nil {
				t.Fatalf("loaded, and its sums are wrong: %v", sums)
			}
			if err := s.Check(); err != nil {
				t.Fatal(err)
			}
			if _, _, err := Load(bytes.NewReader(fileOf(t, s))); err != nil {
				t.Fatalf("what was loaded cannot be loaded again: %v", err)
			}
		}
	})
}

// Two whole blocks in the wrong order: each has a good sum.
func TestSwappedBlocksAreNoticed(t *testing.T) {
	file := fileOf(t, example(t, 200_000))
	at := headSize + partHead + int(binary.LittleEndian.Uint32(file[headSize:]))
	const size = partHead + maxBlock
	a, b := slices.Clone(file[at:at+size]), slices.Clone(file[at+size:at+2*size])
	copy(file[at:], b)
	copy(file[at+size:], a)
	if _, err := Check(bytes.NewReader(file)); !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), "whole file") {
		t.Error(err)
	}
}
