package state

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"reflect"
	"runtime"
	"testing"
	"time"

	"github.com/leasehold-dev/leasehold/raftstore/access"
	"github.com/leasehold-dev/leasehold/raftstore/mvcc"
)

// everyCommand has one of each, with every field set.
func everyCommand() []Command {
	settings := Settings{TTL: 1500 * time.Millisecond, Takeover: Fenced, HandoffTimeout: 7 * time.Second, RestartGrace: time.Second, InitialDelay: 3 * time.Millisecond}
	return []Command{
		&Bootstrap{ClusterID: "0123456789abcdef", FirstToken: 123456789},
		&Announce{Term: 7, Server: Server{ID: "s1", RaftAddr: "a:1", GRPCAddr: "b:2", HTTPAddr: "c:3", GossipAddr: "d:4", Version: "v1"}},
		&Tick{Term: 7, Elapsed: time.Second},
		&KeepAlive{Term: 7, Elapsed: 20 * time.Millisecond, Sessions: []SessionID{1, 1<<63 - 1}},
		&Expire{Term: 7, Elapsed: 1, Sessions: []Expiry{{5, 900}, {6, math.MaxUint64}}},
		&OpenSession{
			Session: 42, Worker: "w1", Incarnation: 17, Keyspaces: []string{"a", "b"}, Endpoint: "http://w1", Zone: "z",
			Addr: "10.0.0.1:9", Capacity: 12, Labels: map[string]string{"b": "2", "a": "1"}, Gossip: true,
		},
		&JoinKeyspace{Session: 42, Keyspace: "c"},
		&LeaveSession{Session: 42, Restart: true},
		&CloseSession{Session: 42},
		&CreateKeyspace{Name: "a", Partitions: 1 << 20, Settings: settings},
		&UpdateKeyspace{Name: "a", Settings: settings},
		&DeleteKeyspace{Name: "a"},
		&Grant{Term: 7, Keyspace: 3, Cause: CauseInitial, Items: []GrantItem{{0, 0, 42}, {9, MaxToken, 43}, {4, 8, 42}, {math.MaxUint32, 1, 44}}},
		&Release{Session: 42, Cause: CauseFailed, Error: "boom", Items: []LeaseRef{{3, 9, 100}, {4, 1, MaxToken}, {3, 0, 1}}},
		&Drain{Term: 7, Keyspace: 3, Timeout: 30 * time.Second, Cause: CauseBalance, Items: []DrainItem{{1, 2, 42, false}, {2, 3, 0, true}}},
		&Revoke{Term: 7, Keyspace: 3, Cause: CauseCrash, Items: []RevokeItem{{1, 42, 5}, {0, 43, 4}}},
		&BarWorker{Worker: "w1", Drained: true},
		&Evict{Worker: "w1"},
		&Retry{Keyspace: 3, Partition: 8},
		&RaiseToken{Token: MaxToken},
		&RaiseFeature{Term: 7, Level: 3},
		&Transact{Txn: everyTxn()},
		&Compact{Revision: 17},
		&GrantLease{Session: 1<<63 - 1, TTL: MaxLeaseTTL},
		&RevokeLease{Session: 42},
		&Enqueue{Name: []byte("jobs"), Session: 42, Value: []byte("me"), Update: true},
		&Sequence{Prefix: []byte("a/"), Value: []byte("v"), Session: 42, After: MaxSequence},
		&SetAlarm{Member: math.MaxUint64, Raised: true},
		&OpenSession{
			Session: 42, Worker: "w1", Incarnation: 17, Keyspaces: []string{"a", "b"}, Endpoint: "http://w1", Zone: "z",
			Addr: "10.0.0.1:9", Capacity: 12, Labels: map[string]string{"b": "2", "a": "1"}, Gossip: true, Owner: "worker/w1",
		},
		&GrantLease{Session: 1<<63 - 1, TTL: MaxLeaseTTL, Owner: "credential/abc123abc123"},
		&PutCredential{Credential: fullCredential()},
		&RevokeCredential{ID: "abc123abc123"},
		&SetKeyring{Version: 9, Keys: [][]byte{[]byte("0123456789abcdef"), []byte("0123456789abcdef0123456789abcdef")}},
	}
}

// fullCredential has every field set.
func fullCredential() access.Credential {
	return access.Credential{
		ID: "abc123abc123", Name: "ci", Hash: access.HashSecret([]byte("secret")), Role: access.Operator,
		Scope:   access.Scope{Keyspaces: []string{"orders", "pay-*"}, Prefixes: []string{"", "/app\xff"}},
		Created: time.UnixMilli(1764400000123).UTC(), Expires: time.UnixMilli(1764500000456).UTC(), By: "operator/root (certificate 1f)",
	}
}

// everyTxn has every field of every operation set.
func everyTxn() mvcc.Txn {
	put := mvcc.Op{Put: &mvcc.PutOp{Key: []byte("k\x00"), Value: []byte("v\xff"), Lease: 42, PrevKV: true, IgnoreValue: true, IgnoreLease: true}}
	read := mvcc.Op{Range: &mvcc.RangeOp{
		Key: []byte("a"), End: []byte{0}, Revision: -1, Limit: 5, Target: mvcc.SortByValue, Order: mvcc.SortDescend, KeysOnly: true, CountOnly: true,
		MinModRevision: 1, MaxModRevision: 2, MinCreateRevision: 3, MaxCreateRevision: math.MaxInt64,
	}}
	remove := mvcc.Op{Delete: &mvcc.DeleteOp{Key: []byte("b"), End: []byte("c"), PrevKV: true}}
	return mvcc.Txn{
		Compare: []mvcc.Compare{
			{Key: []byte("k"), End: []byte("l"), Target: mvcc.CompareValue, Result: mvcc.CompareNotEqual, Value: []byte("v")},
			{Key: []byte("k"), Target: mvcc.CompareLease, Result: mvcc.CompareGreater, Number: -9},
		},
		Success: []mvcc.Op{put, {Txn: &mvcc.Txn{Failure: []mvcc.Op{put, {}}}}, read},
		Failure: []mvcc.Op{remove, {}},
	}
}

func fullBatch() *Batch {
	b := &Batch{Wall: time.UnixMilli(1764400000123).UTC(), Commands: everyCommand()}
	for i := range b.Commands {
		b.Requests = append(b.Requests, uint64(i)*0x9e3779b97f4a7c15)
	}
	return b
}

func encode(t testing.TB, b *Batch) []byte {
	t.Helper()
	data, err := AppendBatch(nil, b)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestEveryCommandRoundTrips(t *testing.T) {
	want := fullBatch()
	got, err := DecodeBatch(encode(t, want))
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("got %s\nwant %s", describe(got), describe(want))
	}
	for n := uint16(1); n <= cmdSetKeyring; n++ {
		if c := newCommand(n); c == nil || c.number() != n {
			t.Errorf("number %d is not a command's", n)
		}
	}
}

func TestEncodingAppendsAndLeavesTheCommandsAlone(t *testing.T) {
	b := fullBatch()
	data, err := AppendBatch([]byte("head"), b)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(data, append([]byte("head"), encode(t, fullBatch())...)) {
		t.Error("prefix or content differ")
	}
	if !reflect.DeepEqual(b, fullBatch()) {
		t.Error("encoding changed the batch")
	}
	if _, err := AppendBatch(nil, &Batch{Commands: []Command{nil}}); err == nil {
		t.Error("a nil command was encoded")
	}
	if _, err := AppendBatch(nil, &Batch{Requests: []uint64{1}}); err == nil {
		t.Error("a request id without a command was encoded")
	}
}

// unknown is a command of a version to come.
func unknown(t *testing.T, number uint16) []byte {
	return encode(t, &Batch{
		Requests: []uint64{7, 8},
		Commands: []Command{&skipped{num: number, body: []byte("whatever")}, &RaiseToken{Token: 9}},
	})
}

func TestUnknownCommandIsSkippedOrStopsTheServer(t *testing.T) {
	data := unknown(t, 900|mayIgnore)
	b, err := DecodeBatch(data)
	if err != nil {
		t.Fatal(err)
	}
	if len(b.Commands) != 2 || len(b.Requests) != 2 {
		t.Fatalf("commands and request ids are out of step: %v %v", b.Commands, b.Requests)
	}
	if again := encode(t, b); !bytes.Equal(again, data) {
		t.Error("a skipped command is not kept as it was")
	}
	s := New()
	s.Apply(1, 1, &Batch{Commands: []Command{&Bootstrap{ClusterID: "c"}}})
	r := s.Apply(2, 1, b)
	if r[0].Err != nil || r[1].Err != nil || s.LastToken() != 9 {
		t.Errorf("results %v, last token %d", r, s.LastToken())
	}
	_, err = DecodeBatch(unknown(t, 900))
	var u *UnknownCommandError
	if !errors.As(err, &u) || u.Number != 900 {
		t.Errorf("got %v", err)
	}
}

func TestTruncatedOrPaddedBatchIsRefused(t *testing.T) {
	data := encode(t, fullBatch())
	for n := range data {
		if _, err := DecodeBatch(data[:n]); err == nil {
			t.Fatalf("the first %d of %d bytes were decoded", n, len(data))
		}
	}
	if _, err := DecodeBatch(append(data, 0)); err == nil {
		t.Error("a byte too many was decoded")
	}
	var v *VersionError
	if _, err := DecodeBatch(append([]byte{2}, data[1:]...)); !errors.As(err, &v) || v.Got != 2 {
		t.Errorf("a later version: %v", err)
	}
}

// TestHugeCountsAllocateNothing claims more elements than there is input.
func TestHugeCountsAllocateNothing(t *testing.T) {
	body := binary.AppendUvarint(nil, 7)               // term
	body = binary.AppendUvarint(body, 0)               // elapsed
	body = binary.AppendUvarint(body, math.MaxInt64/2) // sessions
	data := []byte{batchVersion, 0, 0, 1, byte(cmdKeepAlive)}
	data = binary.LittleEndian.AppendUint32(data, uint32(len(body)))
	data = append(data, body...)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range 100 {
		if _, err := DecodeBatch(data); err == nil {
			t.Fatal("decoded")
		}
	}
	runtime.ReadMemStats(&after)
	allocated := (after.TotalAlloc - before.TotalAlloc) / 100
	if allocated > 4096 {
		t.Errorf("%d bytes allocated for %d of input", allocated, len(data))
	}
}

// TestTenThousandGrantsStayFarBelowTheEntryLimit: 256 KiB is what propose
// gathers into one entry.
func TestTenThousandGrantsStayFarBelowTheEntryLimit(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for name, last := range map[string]func(i int) Token{
		"first":       func(int) Token { return 0 },
		"consecutive": func(i int) Token { return 1<<48 + Token(i) },
		"scattered":   func(int) Token { return 1<<48 + Token(r.Uint64N(1<<20)) },
	} {
		g := &Grant{Term: 9, Keyspace: 1, Cause: CauseExpired}
		for i := range 10_000 {
			g.Items = append(g.Items, GrantItem{uint32(i), last(i), SessionID(i%1000 + 1<<62)})
		}
		if n := len(encode(t, &Batch{Commands: []Command{g}})); n > 128<<10 {
			t.Errorf("%s: %d bytes", name, n)
		} else {
			t.Logf("%s: %d bytes, %.1f a grant", name, n, float64(n)/10_000)
		}
	}
}

// TestGoldenFormat opens what version 1 wrote. These files are never
// rewritten: what the format has learned since gets new ones beside them.
func TestGoldenFormat(t *testing.T) {
	for _, sample := range []struct {
		batch, snapshot string
		commands        int // of fullBatch, the first of which were there then
		state           func(testing.TB) *State
	}{
		{"testdata/batch.v1", "testdata/snapshot.v1", 20, richState},
		{"testdata/batch.v1-21", "testdata/snapshot.v1-10", 21, restoredState}, // command 21, frame 10
		{"testdata/batch.v1-28", "testdata/snapshot.v1-16", 28, keyedState},    // keys: commands 22 to 28, frames 11 to 16
		{"testdata/batch.v1-33", "testdata/snapshot.v1-19", 33, ownedState},    // owners and credentials: commands 29 to 33, frames 17 to 19
	} {
		t.Run(sample.batch, func(t *testing.T) {
			want := fullBatch()
			want.Commands, want.Requests = want.Commands[:sample.commands], want.Requests[:sample.commands]
			if _, err := os.Stat(sample.batch); errors.Is(err, os.ErrNotExist) && *update {
				writeGolden(t, sample.batch, encode(t, want))
				writeGolden(t, sample.snapshot, snapshotOf(t, sample.state(t)))
			}
			openGolden(t, sample.batch, sample.snapshot, want, sample.state(t))
		})
	}
}

// restoredState has what comes with a restore and an upgrade.
func restoredState(t testing.TB) *State {
	t.Helper()
	s := richState(t)
	s.feature, s.strictAt = 2, s.clock+time.Minute
	return s
}

// keyedState has what comes with keys, beside all else.
func keyedState(t testing.TB) *State {
	t.Helper()
	s := richState(t)
	index, term := s.Applied()
	do := func(cs ...Command) {
		t.Helper()
		index++
		for i, r := range s.Apply(index, term, &Batch{Wall: time.UnixMilli(int64(index) * 1000), Commands: cs}) {
			if r.Err != nil {
				t.Fatalf("%T: %v", cs[i], r.Err)
			}
		}
	}
	do(&RaiseFeature{Term: term, Level: 2})
	do(&GrantLease{Session: 60, TTL: 30}, &GrantLease{Session: 150, TTL: MaxLeaseTTL}, &GrantLease{Session: 1 << 62, TTL: 1})
	do(&KeepAlive{Term: term, Elapsed: time.Second, Sessions: []SessionID{60, 1 << 62}})
	do(&Enqueue{Name: []byte("jobs"), Session: 60}, &Enqueue{Name: []byte("jobs"), Session: 150, Value: []byte("x")}, &Enqueue{Name: []byte("jobs"), Session: 102})
	do(putCommand("gone", "1", 0), putCommand("kept", "1", 0), putCommand("kept", "2", 150), putCommand("cut", "1", 102), putCommand("cut", "", 0))
	do(&Transact{Txn: mvcc.Txn{Success: []mvcc.Op{{Delete: &mvcc.DeleteOp{Key: []byte("gone")}}}}})
	do(&Compact{Revision: 8})
	do(putCommand("late", "1", 60), putCommand("kept", "3", 150))
	do(&Sequence{Prefix: []byte("s/"), After: 9}, &Sequence{Prefix: []byte("r/"), Session: 102}, &Sequence{Prefix: []byte("s/"), Value: []byte("ten")})
	do(&GrantLease{Session: 61, TTL: 9})
	do(&SetAlarm{Member: 7, Raised: true}, &SetAlarm{Member: 5, Raised: true})
	if err := s.Check(); err != nil {
		t.Fatal(err)
	}
	return s
}

// ownedState has what comes with owners and credentials, beside all else.
func ownedState(t testing.TB) *State {
	t.Helper()
	s := keyedState(t)
	index, term := s.Applied()
	do := func(cs ...Command) {
		t.Helper()
		index++
		for i, r := range s.Apply(index, term, &Batch{Wall: time.UnixMilli(int64(index) * 1000), Commands: cs}) {
			if r.Err != nil {
				t.Fatalf("%T: %v", cs[i], r.Err)
			}
		}
	}
	do(&SetAlarm{Member: 7}, &SetAlarm{Member: 5}, &RaiseFeature{Term: term, Level: 3})
	plain := access.Credential{ID: "zzzzzzzzzzz9", Name: "app", Role: access.Worker, Scope: access.Everywhere(), Created: time.UnixMilli(1)}
	gone := access.Credential{ID: "gonegonegone", Name: "gone", Role: access.Reader, Created: time.UnixMilli(5)}
	do(&PutCredential{Credential: fullCredential()}, &PutCredential{Credential: plain}, &PutCredential{Credential: gone})
	owner := access.CredentialOwner(gone.ID)
	do(&OpenSession{Session: 300, Worker: "o1", Keyspaces: []string{"orders", "jobs"}, Owner: "worker/o1"},
		&OpenSession{Session: 301, Worker: "o2", Keyspaces: []string{"orders", "jobs"}, Owner: owner})
	do(&GrantLease{Session: 302, TTL: 30, Owner: owner}, &GrantLease{Session: 303, TTL: 30, Owner: "operator/root"}, putCommand("owned", "1", 302))
	do(&RevokeCredential{ID: gone.ID})
	for v := range uint64(2) {
		do(&SetKeyring{Version: v, Keys: [][]byte{[]byte("0123456789abcdef"), []byte("0123456789abcdef01234567")}})
	}
	do(&SetAlarm{Member: 7, Raised: true}, &SetAlarm{Member: 5, Raised: true})
	if err := s.Check(); err != nil {
		t.Fatal(err)
	}
	return s
}

func openGolden(t *testing.T, batchFile, snapshotFile string, want *Batch, same *State) {
	t.Helper()
	batch, err := os.ReadFile(batchFile)
	if err != nil {
		t.Fatal(err)
	}
	b, err := DecodeBatch(batch)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(b, want) {
		t.Errorf("the batch reads as %s", describe(b))
	}
	if !bytes.Equal(encode(t, b), batch) {
		t.Error("the batch is written differently now")
	}
	snapshot, err := os.ReadFile(snapshotFile)
	if err != nil {
		t.Fatal(err)
	}
	s, err := Restore(bytes.NewReader(snapshot))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(snapshotOf(t, s), snapshot) {
		t.Error("the snapshot is written differently now")
	}
	if !bytes.Equal(snapshotOf(t, same), snapshot) {
		t.Error("the same entries lead to another state now")
	}
}

func writeGolden(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
}

// richState has something in every table.
func richState(t testing.TB) *State {
	t.Helper()
	s := New()
	index := uint64(0)
	do := func(cs ...Command) []Result {
		index++
		results := s.Apply(index, 3, &Batch{Wall: time.UnixMilli(int64(index) * 1000), Commands: cs, Requests: make([]uint64, len(cs))})
		for i, r := range results {
			if r.Err != nil {
				t.Fatalf("%T: %v", cs[i], r.Err)
			}
			for _, err := range r.Items {
				if err != nil {
					t.Fatalf("%T: %v", cs[i], err)
				}
			}
		}
		return results
	}
	strict := Settings{TTL: 10 * time.Second, Takeover: Strict, HandoffTimeout: 30 * time.Second, RestartGrace: 20 * time.Second, InitialDelay: time.Second}
	fenced := Settings{TTL: 3 * time.Second, Takeover: Fenced, HandoffTimeout: 30 * time.Second}
	do(&Announce{Term: 3, Server: Server{ID: "s1", RaftAddr: "10.0.0.1:7401", GRPCAddr: "10.0.0.1:7400", Version: "v0"}}, &Bootstrap{ClusterID: "c0ffee", FirstToken: 1 << 40})
	do(&CreateKeyspace{Name: "orders", Partitions: 16, Settings: strict}, &CreateKeyspace{Name: "jobs", Partitions: 8, Settings: fenced}, &CreateKeyspace{Name: "old", Partitions: 2, Settings: strict})
	do(&Tick{Term: 3})
	for i := range SessionID(4) {
		do(&OpenSession{
			Session: 100 + i, Worker: string(rune('a' + i)), Keyspaces: []string{"orders", "jobs", "old"}, Endpoint: "http://w",
			Zone: "z1", Addr: "10.0.0.9:1", Capacity: 40, Labels: map[string]string{"k": "v"}, Gossip: i%2 == 0,
		})
	}
	do(&KeepAlive{Term: 3, Elapsed: time.Second, Sessions: []SessionID{100, 101, 102, 103}})
	first := Token(1 << 40)
	g := &Grant{Term: 3, Keyspace: 1, Cause: CauseInitial}
	for p := range uint32(16) {
		g.Items = append(g.Items, GrantItem{p, 0, 100 + SessionID(p*7%4)})
	}
	do(g)
	do(&Grant{Term: 3, Keyspace: 2, Cause: CauseInitial, Items: []GrantItem{{0, 0, 100}, {1, 0, 101}, {2, 0, 101}, {3, 0, 102}}})
	do(&Grant{Term: 3, Keyspace: 3, Cause: CauseInitial, Items: []GrantItem{{0, 0, 102}}})
	do(&Release{Session: 101, Cause: CauseFailed, Error: "boom", Items: []LeaseRef{{2, 1, first + 17}}})
	do(&Drain{Term: 3, Keyspace: 1, Timeout: 30 * time.Second, Cause: CauseBalance, Items: []DrainItem{{0, first, 101, false}, {4, first + 4, 0, true}}})
	do(&LeaveSession{Session: 100, Restart: true})
	do(&Release{Session: 100, Cause: CauseDrained, Items: []LeaseRef{{1, 4, first + 4}}})
	w, _ := s.Worker("b")
	do(&OpenSession{Session: 200, Worker: "b", Incarnation: w.Incarnation, Keyspaces: []string{"orders"}})
	do(&Evict{Worker: "d"}, &DeleteKeyspace{Name: "old"}, &RaiseToken{Token: 1 << 41})
	s.Apply(index+1, 4, &Batch{Requests: []uint64{77, 78}, Commands: []Command{&Announce{Term: 4, Server: Server{ID: "s2"}}, &Tick{Term: 4}}})
	if err := s.Check(); err != nil {
		t.Fatal(err)
	}
	return s
}
