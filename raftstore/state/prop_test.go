package state

import (
	"bytes"
	"fmt"
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// world draws random log entries, most of them sensible and some not, from
// what a leader could see of the state.
type world struct {
	t     *rapid.T
	s     *State
	index uint64
	term  uint64
}

func (w *world) session() SessionID {
	if ids := w.s.sessionOrder; len(ids) > 0 && rapid.IntRange(0, 9).Draw(w.t, "known") > 0 {
		return ids[rapid.IntRange(0, len(ids)-1).Draw(w.t, "session")].ID
	}
	return SessionID(rapid.IntRange(0, 12).Draw(w.t, "any session"))
}

func (w *world) keyspace() *Keyspace {
	if len(w.s.keyspaceOrder) == 0 {
		return &Keyspace{ID: 9, Name: "none", Partitions: 1, leaseTable: newLeaseTable(1), state: w.s}
	}
	return rapid.SampledFrom(w.s.keyspaceOrder).Draw(w.t, "keyspace")
}

func (w *world) name() string {
	return rapid.SampledFrom([]string{"a", "b", "c", "", "x/y"}).Draw(w.t, "name")
}

func (w *world) worker() string {
	return rapid.SampledFrom([]string{"w1", "w2", "w3", "w4", "bad id"}).Draw(w.t, "worker")
}

func (w *world) settings() Settings {
	return Settings{
		TTL:            time.Duration(rapid.SampledFrom([]int{1, 500, 1500, 3000, 10000}).Draw(w.t, "ttl")) * time.Millisecond,
		Takeover:       rapid.SampledFrom([]Takeover{Strict, Fenced}).Draw(w.t, "takeover"),
		HandoffTimeout: 3 * time.Second,
		RestartGrace:   rapid.SampledFrom([]time.Duration{0, 20 * time.Second}).Draw(w.t, "grace"),
	}
}

func (w *world) elapsed() time.Duration {
	return time.Duration(rapid.SampledFrom([]int{-1, 0, 100, 1000, 2000, 90000}).Draw(w.t, "elapsed")) * time.Millisecond
}

func (w *world) cause(of ...Cause) Cause { return rapid.SampledFrom(of).Draw(w.t, "cause") }

// member is mostly a session that has joined k.
func (w *world) member(k *Keyspace) SessionID {
	var ids []SessionID
	for _, x := range w.s.sessionOrder {
		if _, ok := x.list(k.ID); ok && !x.barred() {
			ids = append(ids, x.ID)
		}
	}
	if len(ids) == 0 || rapid.IntRange(0, 7).Draw(w.t, "any member") == 0 {
		return w.session()
	}
	return rapid.SampledFrom(ids).Draw(w.t, "member")
}

// parts are mostly such partitions as fit.
func (w *world) parts(k *Keyspace, fit func(Lease) bool) []uint32 {
	var fits []uint32
	for p := range k.Partitions {
		if fit(k.Lease(p)) {
			fits = append(fits, p)
		}
	}
	if len(fits) > 0 && rapid.IntRange(0, 7).Draw(w.t, "any") > 0 {
		return rapid.SliceOfN(rapid.SampledFrom(fits), 1, 4).Draw(w.t, "fitting")
	}
	return rapid.SliceOfN(rapid.Uint32Range(0, k.Partitions), 1, 6).Draw(w.t, "partitions")
}

// lease reads a partition, also one that is out of range.
func (k *Keyspace) leaseOrZero(p uint32) Lease {
	if p < k.Partitions {
		return k.Lease(p)
	}
	return Lease{}
}

func (w *world) token(l Lease) Token {
	if rapid.IntRange(0, 9).Draw(w.t, "stale") == 0 {
		return l.Token + Token(rapid.IntRange(0, 2).Draw(w.t, "off"))
	}
	return l.Token
}

func (w *world) dutyTerm() uint64 {
	if rapid.IntRange(0, 19).Draw(w.t, "old term") == 0 {
		return w.term - 1
	}
	return w.term
}

func (w *world) command() Command {
	switch rapid.IntRange(0, 6).Draw(w.t, "keys") {
	case 0, 1:
		return w.keyCommand()
	case 2:
		return w.accessCommand()
	}
	switch rapid.IntRange(0, 23).Draw(w.t, "command") {
	case 0:
		return &CreateKeyspace{Name: w.name(), Partitions: rapid.Uint32Range(0, 9).Draw(w.t, "P"), Settings: w.settings()}
	case 1:
		return &UpdateKeyspace{Name: w.name(), Settings: w.settings()}
	case 2:
		if rapid.IntRange(0, 3).Draw(w.t, "delete") > 0 {
			return &Tick{Term: w.dutyTerm(), Elapsed: w.elapsed()}
		}
		return &DeleteKeyspace{Name: w.name()}
	case 3, 4, 5:
		return w.open()
	case 6:
		return &JoinKeyspace{Session: w.session(), Keyspace: w.name()}
	case 7:
		return &LeaveSession{Session: w.session(), Restart: rapid.Bool().Draw(w.t, "restart")}
	case 8:
		return &CloseSession{Session: w.session()}
	case 9, 10:
		return &KeepAlive{Term: w.dutyTerm(), Elapsed: w.elapsed(), Sessions: []SessionID{w.session(), w.session()}}
	case 11, 12:
		return w.expire()
	case 13:
		return &Tick{Term: w.dutyTerm(), Elapsed: w.elapsed()}
	case 14, 15, 16:
		return w.grant()
	case 17, 18:
		return w.release()
	case 19:
		return w.drain()
	case 20:
		return w.revoke()
	case 21:
		return &BarWorker{Worker: w.worker(), Drained: rapid.Bool().Draw(w.t, "drained")}
	case 22:
		if rapid.Bool().Draw(w.t, "evict") {
			return &Evict{Worker: w.worker()}
		}
		k := w.keyspace()
		return &Retry{Keyspace: k.ID, Partition: rapid.Uint32Range(0, k.Partitions).Draw(w.t, "p")}
	default:
		return &RaiseToken{Token: w.s.LastToken() + Token(rapid.IntRange(0, 3).Draw(w.t, "raise"))}
	}
}

func (w *world) open() Command {
	id := w.worker()
	c := &OpenSession{
		Session: SessionID(rapid.IntRange(0, 12).Draw(w.t, "new session")), Worker: id,
		Keyspaces: rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "c"}), 0, 3).Draw(w.t, "keyspaces"),
		Capacity:  rapid.Uint32Range(0, 4).Draw(w.t, "capacity"),
		Zone:      "z", Labels: map[string]string{"k": "v", "a": "b"}, Owner: w.owner(),
	}
	if x, ok := w.s.Worker(id); ok && rapid.IntRange(0, 5).Draw(w.t, "cas") > 0 {
		c.Incarnation = x.Incarnation
	}
	return c
}

func (w *world) expire() Command {
	c := &Expire{Term: w.dutyTerm(), Elapsed: w.elapsed()}
	for range rapid.IntRange(1, 3).Draw(w.t, "n") {
		e := Expiry{Session: w.session()}
		if x, ok := w.s.Session(e.Session); ok {
			e.Renewal = x.Renewal - uint64(rapid.IntRange(0, 1).Draw(w.t, "late"))
		}
		c.Sessions = append(c.Sessions, e)
	}
	return c
}

func (w *world) grant() Command {
	k := w.keyspace()
	c := &Grant{Term: w.dutyTerm(), Keyspace: k.ID, Cause: CauseBalance}
	for _, p := range w.parts(k, func(l Lease) bool { return l.Session == 0 }) {
		c.Items = append(c.Items, GrantItem{p, w.token(k.leaseOrZero(p)), w.member(k)})
	}
	return c
}

func (w *world) release() Command {
	c := &Release{
		Session: w.session(), Error: "oh\x00no",
		Cause: w.cause(CauseDrained, CauseYield, CauseFailed, CauseEnded, CauseClaimRefused, CauseRefused, CauseNone),
	}
	for range rapid.IntRange(1, 3).Draw(w.t, "n") {
		k := w.keyspace()
		draining := rapid.Bool().Draw(w.t, "draining")
		p := w.parts(k, func(l Lease) bool { return l.Session != 0 && (l.Draining || !draining) })[0]
		l := k.leaseOrZero(p)
		if l.Session != 0 && rapid.IntRange(0, 5).Draw(w.t, "own") > 0 {
			c.Session = l.Session
		}
		c.Items = append(c.Items, LeaseRef{k.ID, p, w.token(l)})
	}
	return c
}

func (w *world) drain() Command {
	k := w.keyspace()
	c := &Drain{Term: w.dutyTerm(), Keyspace: k.ID, Timeout: time.Second, Cause: CauseBalance}
	for _, p := range w.parts(k, func(l Lease) bool { return l.Session != 0 }) {
		it := DrainItem{Partition: p, Token: w.token(k.leaseOrZero(p)), Reserve: rapid.IntRange(0, 3).Draw(w.t, "reserve") == 0}
		if rapid.Bool().Draw(w.t, "targeted") {
			it.Target = w.member(k)
		}
		c.Items = append(c.Items, it)
	}
	return c
}

func (w *world) revoke() Command {
	k := w.keyspace()
	c := &Revoke{Term: w.dutyTerm(), Keyspace: k.ID, Cause: w.cause(CauseCrash, CauseTimeout)}
	for _, p := range w.parts(k, func(l Lease) bool { return l.Session != 0 }) {
		l := k.leaseOrZero(p)
		c.Items = append(c.Items, RevokeItem{p, l.Session, w.token(l)})
	}
	return c
}

func (w *world) batch() *Batch {
	b := &Batch{Wall: time.UnixMilli(int64(w.index)).UTC()}
	requests := rapid.IntRange(0, 3).Draw(w.t, "requests") == 0
	for range rapid.IntRange(1, 4).Draw(w.t, "commands") {
		b.Commands = append(b.Commands, w.command())
		if requests {
			b.Requests = append(b.Requests, rapid.Uint64Range(0, 40).Draw(w.t, "request"))
		}
	}
	return b
}

func snapshotOf(t interface{ Fatal(...any) }, s *State) []byte {
	var b bytes.Buffer
	if err := s.Snapshot().Write(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestRandomCommandsKeepEveryPromise runs random entries on one replica, and
// on another that gets them encoded and is replaced by a restored snapshot of
// itself now and then.
func TestRandomCommandsKeepEveryPromise(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := New(), New()
		w := &world{t: t, s: a, term: 5}
		boot := &Batch{Commands: []Command{
			&Announce{Term: 5, Server: Server{ID: "s1"}}, &Bootstrap{ClusterID: "c", FirstToken: 1000},
			&CreateKeyspace{Name: "a", Partitions: 6, Settings: Settings{TTL: 2 * time.Second, Takeover: Strict, RestartGrace: 9 * time.Second}},
			&CreateKeyspace{Name: "b", Partitions: 5, Settings: Settings{TTL: 3 * time.Second, Takeover: Fenced}},
		}}
		if rapid.IntRange(0, 7).Draw(t, "old") > 0 {
			boot.Commands = append(boot.Commands, &RaiseFeature{Term: 5, Level: Feature(rapid.IntRange(2, 3).Draw(t, "level"))})
		}
		for i := range 3 {
			boot.Commands = append(boot.Commands, &OpenSession{Session: SessionID(i + 1), Worker: fmt.Sprintf("w%d", i+1), Keyspaces: []string{"a", "b"}})
		}
		w.index++
		a.Apply(w.index, w.term, boot)
		b.Apply(w.index, w.term, boot)
		for range rapid.IntRange(1, 80).Draw(t, "entries") {
			w.index++
			if rapid.IntRange(0, 15).Draw(t, "election") == 0 {
				w.term++
			}
			batch := w.batch()
			before := look(a)
			got := a.Apply(w.index, w.term, batch)
			if err := a.Check(); err != nil {
				t.Fatalf("%v after %s", err, describe(batch))
			}
			promises(t, a, before, batch, got)
			keyPromises(t, a, before, got)
			accessPromises(t, a, before, batch, got)

			encoded, err := AppendBatch(nil, batch)
			if err != nil {
				t.Fatal(err)
			}
			decoded, err := DecodeBatch(encoded)
			if err != nil {
				t.Fatal(err)
			}
			if again, _ := AppendBatch(nil, decoded); !bytes.Equal(encoded, again) {
				t.Fatalf("encoding of %s does not round-trip", describe(batch))
			}
			if rapid.IntRange(0, 7).Draw(t, "restart") == 0 {
				if b, err = Restore(bytes.NewReader(snapshotOf(t, b))); err != nil {
					t.Fatal(err)
				}
			}
			if want := b.Apply(w.index, w.term, decoded); !reflect.DeepEqual(got, want) {
				t.Fatalf("replicas answer differently to %s", describe(batch))
			}
			if !bytes.Equal(snapshotOf(t, a), snapshotOf(t, b)) {
				t.Fatalf("replicas differ after %s", describe(batch))
			}
		}
	})
}

func describe(b *Batch) string {
	text := ""
	for _, c := range b.Commands {
		text += fmt.Sprintf("%T%+v ", c, c)
	}
	return text
}

// seen is what the promises are about, before an entry.
type seen struct {
	token    Token
	revision uint64
	clock    Clock
	leases   map[KeyspaceID][]Lease
	strict   map[KeyspaceID]bool
	deadline map[SessionID]Clock
	keys     seenKeys
	access   seenAccess
}

func look(s *State) seen {
	v := seen{
		token: s.LastToken(), revision: s.Revision(), clock: s.Now(), leases: map[KeyspaceID][]Lease{},
		strict: map[KeyspaceID]bool{}, deadline: map[SessionID]Clock{},
	}
	for k := range s.Keyspaces() {
		v.strict[k.ID] = k.Settings.Takeover == Strict
		for p := range k.Partitions {
			v.leases[k.ID] = append(v.leases[k.ID], k.Lease(p))
		}
	}
	for x := range s.Sessions() {
		v.deadline[x.ID] = x.Deadline
	}
	v.keys, v.access = lookAtKeys(s), lookAtAccess(s)
	return v
}

// promises compares the events of one entry with the state before it.
func promises(t *rapid.T, s *State, before seen, b *Batch, results []Result) {
	events, err := s.Events(before.revision, LedgerSize, nil)
	if err != nil {
		t.Fatal(err)
	}
	if s.Now() < before.clock || s.Now() > before.clock+time.Duration(len(b.Commands))*MaxElapsed {
		t.Fatalf("the clock went from %s to %s", before.clock, s.Now())
	}
	changedMode := map[KeyspaceID]bool{}
	last := before.token
	// What queues draw is told by their results alone, between the events.
	drawn := drawnBy(results)
	type place struct {
		ks KeyspaceID
		p  uint32
	}
	ended := map[place]bool{}
	for _, e := range events {
		switch e.Kind {
		case KindGrant, KindTokenRaise:
			for len(drawn) > 0 && drawn[0] == last+1 {
				last, drawn = drawn[0], drawn[1:]
			}
			if e.Token <= last {
				t.Fatalf("token %d after %d", e.Token, last)
			}
			last = e.Token
		case KindKeyspaceUpdate:
			changedMode[e.Keyspace] = true
		case KindRevoke:
			if before.strict[e.Keyspace] && !changedMode[e.Keyspace] {
				t.Fatalf("strict lease of %d/%d was revoked", e.Keyspace, e.Partition)
			}
		case KindSessionExpire:
			if d, ok := before.deadline[e.Session]; ok && s.Now() < d {
				t.Fatalf("session %d expired before its deadline %s at %s", e.Session, d, s.Now())
			}
		}
		switch e.Kind {
		case KindRelease, KindRevoke, KindExpire:
			ended[place{e.Keyspace, e.Partition}] = true
		}
	}
	for _, token := range drawn {
		if token <= last {
			t.Fatalf("token %d of a queue after %d", token, last)
		}
		last = token
	}
	if last != s.LastToken() {
		t.Fatalf("the counter is %d, the last token told is %d", s.LastToken(), last)
	}
	for k := range s.Keyspaces() {
		for p, l := range before.leases[k.ID] {
			now := k.Lease(uint32(p))
			if now.Token < l.Token {
				t.Fatalf("token of %s/%d fell", k.Name, p)
			}
			if l.Session != 0 && now.Session != l.Session && !ended[place{k.ID, uint32(p)}] {
				t.Fatalf("%s/%d changed its holder without an end", k.Name, p)
			}
		}
	}
}
