package state

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/leasehold-dev/leasehold/raftstore/access"
)

func TestSnapshotReadsBackAllAndNoMore(t *testing.T) {
	s := richState(t)
	data := snapshotOf(t, s)
	r := bytes.NewReader(append(slices.Clone(data), "what follows"...))
	back, err := Restore(iotest.HalfReader(r))
	if err != nil {
		t.Fatal(err)
	}
	if rest, _ := io.ReadAll(r); string(rest) != "what follows" {
		t.Errorf("left %q", rest)
	}
	if !bytes.Equal(snapshotOf(t, back), data) {
		t.Error("the restored state is written differently")
	}
	for k := range s.Keyspaces() {
		b, ok := back.KeyspaceByName(k.Name)
		if !ok {
			t.Fatalf("%s is missing", k.Name)
		}
		for p := range k.Partitions {
			if k.Lease(p) != b.Lease(p) || k.Previous(p) != b.Previous(p) {
				t.Errorf("%s/%d: %+v and %+v", k.Name, p, k.Lease(p), b.Lease(p))
			}
		}
		if !reflect.DeepEqual(slices.Collect(k.Moves()), slices.Collect(b.Moves())) ||
			!reflect.DeepEqual(slices.Collect(k.Slots()), slices.Collect(b.Slots())) ||
			!reflect.DeepEqual(slices.Collect(k.Suspects()), slices.Collect(b.Suspects())) {
			t.Errorf("%s: moves, slots or suspects differ", k.Name)
		}
		for x := range s.Sessions() {
			if !slices.Equal(slices.Collect(s.Held(x.ID, k.ID)), slices.Collect(back.Held(x.ID, k.ID))) {
				t.Errorf("session %d holds differently", x.ID)
			}
		}
	}
}

// TestSnapshotIsFrozen writes a snapshot after the state has gone on.
func TestSnapshotIsFrozen(t *testing.T) {
	s := richState(t)
	want := snapshotOf(t, s)
	p := s.Snapshot()
	index, term := s.Applied()
	for i := range uint64(3 * chunkEvents) {
		s.Apply(index+1+i, term, &Batch{Requests: []uint64{1000 + i, 0, 0}, Commands: []Command{
			&RaiseToken{Token: s.LastToken() + 1},
			&Tick{Term: term, Elapsed: time.Second},
			&Release{Session: 102, Cause: CauseYield, Items: []LeaseRef{{1, 2, 1<<40 + 2}}},
		}})
	}
	var got bytes.Buffer
	if err := p.Write(&got); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got.Bytes(), want) {
		t.Error("the snapshot moved with the state")
	}
}

func TestTruncatedSnapshotIsRefused(t *testing.T) {
	data := snapshotOf(t, ownedState(t))
	for n := range data {
		if s, err := Restore(bytes.NewReader(data[:n])); !errors.Is(err, ErrDamaged) || s != nil {
			t.Fatalf("the first %d of %d bytes: %v", n, len(data), err)
		}
	}
}

func TestBitFlippedSnapshotIsRefused(t *testing.T) {
	data := snapshotOf(t, ownedState(t))
	var version *VersionError
	for i := range data {
		bit := byte(1) << (i * 5 % 8)
		data[i] ^= bit
		_, err := Restore(bytes.NewReader(data))
		if !errors.Is(err, ErrDamaged) && !(i == len(snapshotMagic) && errors.As(err, &version)) {
			t.Fatalf("bit %d of byte %d: %v", bit, i, err)
		}
		data[i] ^= bit
	}
}

func TestSnapshotErrorsOfReaderAndWriterPassThrough(t *testing.T) {
	broken := errors.New("disk is gone")
	if _, err := Restore(iotest.ErrReader(broken)); !errors.Is(err, broken) || errors.Is(err, ErrDamaged) {
		t.Errorf("restore: %v", err)
	}
	p := ownedState(t).Snapshot()
	for n := range 15 {
		if err := p.Write(&failing{after: n, err: broken}); !errors.Is(err, broken) {
			t.Errorf("write number %d: %v", n, err)
		}
	}
}

type failing struct {
	after int
	err   error
}

func (w *failing) Write(b []byte) (int, error) {
	if w.after == 0 {
		return 0, w.err
	}
	w.after--
	return len(b), nil
}

// TestCheckSeesEveryBrokenInvariant breaks one at a time.
func TestCheckSeesEveryBrokenInvariant(t *testing.T) {
	orders := func(s *State) *Keyspace { return s.keyspaces[1] }
	for name, damage := range map[string]func(*State){
		"two leases with one token":     func(s *State) { orders(s).token[1] = orders(s).token[2] },
		"token above the counter":       func(s *State) { s.lastToken = 5 },
		"counter above its limit":       func(s *State) { s.lastToken = MaxToken + 1 },
		"owner without a token":         func(s *State) { orders(s).token[2] = 0 },
		"holder that does not exist":    func(s *State) { orders(s).holder[2] = 99 },
		"holder that does not list it":  func(s *State) { orders(s).holder[2] = s.sessions[200].seat },
		"list that runs in a circle":    func(s *State) { k := orders(s); k.next[2] = 2 },
		"list that is cut":              func(s *State) { k := orders(s); k.next[s.sessions[102].held[0].head] = none },
		"list with a wrong end":         func(s *State) { s.sessions[102].held[0].tail = 0 },
		"list with a wrong count":       func(s *State) { s.sessions[102].held[0].count++ },
		"session with a wrong count":    func(s *State) { s.sessions[102].Held++ },
		"session above its capacity":    func(s *State) { s.sessions[102].Capacity = 1 },
		"session without a worker":      func(s *State) { s.sessions[102].Worker = "nobody" },
		"session with a far deadline":   func(s *State) { s.sessions[102].Deadline += 2 * time.Hour },
		"session with an early one":     func(s *State) { s.sessions[102].Deadline = 0 },
		"session with a long TTL":       func(s *State) { s.sessions[102].TTL = 5 * time.Second },
		"worker with another session":   func(s *State) { s.workers["c"].Session = 200 },
		"worker that forgot a session":  func(s *State) { s.workers["c"].sessions = 0 },
		"worker's incarnation":          func(s *State) { s.workers["c"].Incarnation++ },
		"keyspace with a wrong count":   func(s *State) { orders(s).Owned-- },
		"draining without a move":       func(s *State) { delete(orders(s).moves, 0) },
		"move without draining":         func(s *State) { k := orders(s); k.flags[0] = 0; k.Draining-- },
		"move of another token":         func(s *State) { k := orders(s); m := k.moves[0]; m.Token++; k.moves[0] = m },
		"unknown flag":                  func(s *State) { orders(s).flags[2] |= 128 },
		"owned since the future":        func(s *State) { orders(s).since[2] = 1 << 30 },
		"table of another size":         func(s *State) { k := orders(s); k.since = k.since[:15] },
		"deleting without leases":       func(s *State) { s.keyspaces[2].Deleting = true; s.deleting++ },
		"deleting not counted":          func(s *State) { s.deleting = 0 },
		"keyspace id from the future":   func(s *State) { s.lastKeyspace = 1 },
		"settings out of limits":        func(s *State) { orders(s).Settings.TTL = 1 },
		"slot of no partition":          func(s *State) { orders(s).slots[0].parts[0] = 16 },
		"slot of no worker":             func(s *State) { orders(s).slots[0].worker = "" },
		"suspect of no partition":       func(s *State) { k := s.keyspaces[2]; k.suspects[9] = k.suspects[1] },
		"quarantine not counted":        func(s *State) { s.keyspaces[2].Quarantined++ },
		"quarantine after one worker":   func(s *State) { k := s.keyspaces[2]; k.suspects[1].quarantined = true; k.Quarantined++ },
		"previous owner of nobody":      func(s *State) { s.owners.refs[1]++ },
		"previous owner out of range":   func(s *State) { s.keyspaces[2].next[7] = 77 },
		"gap in the ledger":             func(s *State) { s.ledger.at(3).Revision++ },
		"event from the future":         func(s *State) { s.ledger.at(s.ledger.count - 1).Index = s.index + 1 },
		"request id twice":              func(s *State) { s.requests.ring = append(s.requests.ring, s.requests.ring[0]) },
		"leader that nobody knows":      func(s *State) { s.leader = "s9" },
		"barred session, fenced leases": func(s *State) { s.sessions[102].State = SessionEvicted },
		"two newest sessions":           func(s *State) { s.sessions[101].State = SessionLive },
		"servers out of order":          func(s *State) { slices.Reverse(s.servers) },

		"key of a session that is gone": func(s *State) { delete(s.sessions, 60); s.sessionOrder = s.sessionOrder[1:] },
		"key that no index has":         func(s *State) { delete(s.sessions[60].keys, "late") },
		"index of a key that is not":    func(s *State) { s.sessions[60].attach([]byte("x")) },
		"index of another's key":        func(s *State) { s.sessions[150].attach([]byte("late")) },
		"key's token above the counter": func(s *State) { s.lastToken-- },
		"lease with a seat":             func(s *State) { s.sessions[60].seat = s.sessions[102].seat },
		"lease in a keyspace":           func(s *State) { s.sessions[60].Keyspaces = []KeyspaceID{1} },
		"lease with a short TTL":        func(s *State) { s.sessions[60].TTL = time.Second },
		"lease with a broken TTL":       func(s *State) { s.sessions[60].TTL++ },
		"lease with a far deadline":     func(s *State) { s.sessions[60].Deadline++ },
		"lease that is leaving":         func(s *State) { s.sessions[60].State = SessionLeaving },
		"sequence at nothing":           func(s *State) { s.sequences["s/"] = 0 },
		"sequence beyond its end":       func(s *State) { s.sequences["s/"] = MaxSequence + 1 },
		"sequence without a prefix":     func(s *State) { s.sequences[""] = 1 },
		"alarms out of order":           func(s *State) { slices.Reverse(s.alarms) },
		"alarm of nobody":               func(s *State) { s.alarms[0] = 0 },

		"owner below the level":          func(s *State) { s.feature = 2; s.credentials, s.keyring = newCredentials(), Keyring{} },
		"credential below the level":     func(s *State) { clearOwners(s); s.feature, s.keyring = 2, Keyring{} },
		"keyring below the level":        func(s *State) { clearOwners(s); s.feature, s.credentials = 2, newCredentials() },
		"owner with a line break":        func(s *State) { s.sessions[300].Owner = "a\nb" },
		"barred lease of nobody":         func(s *State) { s.sessions[302].Owner = "" },
		"superseded lease":               func(s *State) { s.sessions[302].State = SessionSuperseded },
		"credential under another id":    func(s *State) { s.credentials.byID["abc123abc123"].ID = "abc123abc124" },
		"credential under another name":  func(s *State) { s.credentials.byID["abc123abc123"].Name = "x" },
		"credential without a name":      func(s *State) { delete(s.credentials.byName, "ci") },
		"credential for a server":        func(s *State) { s.credentials.byName["ci"].Role = access.Server },
		"credential that expired before": func(s *State) { s.credentials.byName["ci"].Expires = time.UnixMilli(1) },
		"keys without a version":         func(s *State) { s.keyring.Version = 0 },
		"keyring without keys":           func(s *State) { s.keyring.Keys = nil },
		"keyring with a key twice":       func(s *State) { s.keyring.Keys[1] = s.keyring.Keys[0] },
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			s := ownedState(t)
			damage(s)
			if err := s.Check(); err == nil {
				t.Error("nothing noticed")
			}
		})
	}
}

// clearOwners leaves no session that has one, and no lease that is barred.
func clearOwners(s *State) {
	for _, x := range s.sessions {
		if x.Owner = ""; x.isLease() {
			x.State = SessionLive
		}
	}
}

// TestLedgerKeepsTheNewestEvents fills it past its size.
func TestLedgerKeepsTheNewestEvents(t *testing.T) {
	s := New()
	s.Apply(1, 1, &Batch{Commands: []Command{&Bootstrap{ClusterID: "c"}}})
	const more = 2*chunkEvents + 17
	for i := range uint64(LedgerSize + more) {
		s.Apply(i+2, 1, &Batch{Commands: []Command{&RaiseToken{Token: Token(i + 1)}}})
	}
	if s.Revision() != LedgerSize+more {
		t.Fatalf("revision is %d", s.Revision())
	}
	_, err := s.Events(more-1, 1, nil)
	var r *Refusal
	if !errors.As(err, &r) || r.Reason != ReasonCompacted || r.Revision != more {
		t.Fatalf("too old a revision: %v", err)
	}
	events, err := s.Events(r.Revision, LedgerSize+1, nil)
	if err != nil || len(events) != LedgerSize || events[0].Token != more+1 {
		t.Fatalf("%d events, %v", len(events), err)
	}
	if _, err := s.Events(s.Revision()+1, 1, nil); ReasonOf(err) != ReasonCompacted {
		t.Errorf("a revision not reached: %v", err)
	}
	if events, err := s.Events(s.Revision(), 5, nil); err != nil || len(events) != 0 {
		t.Errorf("nothing new: %d events, %v", len(events), err)
	}
	if events, _ := s.Events(more+5, 3, nil); len(events) != 3 || events[0].Revision != more+6 {
		t.Errorf("a limit of 3: %v", events)
	}
	if err := s.Check(); err != nil {
		t.Error(err)
	}
	back, err := Restore(bytes.NewReader(snapshotOf(t, s)))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(snapshotOf(t, back), snapshotOf(t, s)) {
		t.Error("a full ledger is restored differently")
	}
}

func TestRequestWindowForgetsTheOldest(t *testing.T) {
	w := newRequestWindow()
	for id := uint64(1); id <= RequestWindow+10; id++ {
		if !w.add(id) {
			t.Fatalf("%d is not new", id)
		}
	}
	if w.add(11) {
		t.Error("an id within the window is new")
	}
	if !w.add(10) {
		t.Error("an id outside the window is remembered")
	}
	if got := w.ordered(); len(got) != RequestWindow || got[0] != 12 || got[len(got)-1] != 10 || len(w.seen) != RequestWindow {
		t.Errorf("%d ids from %d to %d", len(got), got[0], got[len(got)-1])
	}
}

func TestSlotsAreBounded(t *testing.T) {
	s := New()
	settings := DefaultSettings()
	s.Apply(1, 1, &Batch{Commands: []Command{&Bootstrap{ClusterID: "c"}, &CreateKeyspace{Name: "k", Partitions: 4, Settings: settings}}})
	k := s.keyspaces[1]
	for i := range MaxSlots + 500 {
		index := uint64(2 + i*3)
		id := SessionID(i + 1)
		s.Apply(index, 1, &Batch{Commands: []Command{
			&OpenSession{Session: id, Worker: fmt.Sprintf("w%d", i), Keyspaces: []string{"k"}},
			&Grant{Term: 1, Keyspace: 1, Items: []GrantItem{{uint32(i % 4), k.token[i%4], id}}},
			&CloseSession{Session: id}, &Tick{Term: 1, Elapsed: time.Millisecond},
		}})
	}
	total := 0
	for v := range k.Slots() {
		total += len(v.Partitions)
	}
	if len(k.slots) > MaxSlots || total > 4*4 || total == 0 {
		t.Errorf("%d slots of %d partitions", len(k.slots), total)
	}
	if err := s.Check(); err != nil {
		t.Error(err)
	}
}
