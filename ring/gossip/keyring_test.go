package gossip

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"
)

var (
	keyA = []byte("AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA")
	keyB = []byte("BBBBBBBBBBBBBBBBBBBBBBBB")
	keyC = []byte("CCCCCCCCCCCCCCCC")
)

// keysOf leaves out an empty key.
func keysOf(keys ...[]byte) [][]byte {
	return slices.DeleteFunc(slices.Clone(keys), func(k []byte) bool { return len(k) == 0 })
}

func withKeys(keys ...[]byte) func(*Config) {
	return func(c *Config) { c.Keys, c.KeyringVersion = keys, 1 }
}

// acknowledged tells whether everybody has heard that everybody has these keys.
func acknowledged(members []*testMember, version uint64, keys ...[]byte) bool {
	for _, m := range members {
		for _, other := range members {
			seen, ok := m.Member(other.cfg.Name)
			if !ok || !seen.Up() || seen.Meta.Keyring != KeyringOf(version, keys) {
				return false
			}
		}
	}
	return true
}

// O-89: during a change of keys the old and the new one both work, until the old
// one is gone; nobody is ever dead.
func TestKeysChangeWithoutAGap(t *testing.T) {
	inBubble(t, func(h *harness) {
		var all []*testMember
		for _, id := range []string{"a", "b", "c"} {
			all = append(all, h.start(RoleServer, id, withKeys(keyA)))
		}
		for _, id := range []string{"v", "w"} {
			all = append(all, h.start(RoleWorker, id, withKeys(keyA)))
		}
		h.waitAllAlive(20*time.Second, all...)
		rotate(h, all, 2, keysOf(keyA, keyB))
		rotate(h, all, 3, keysOf(keyB, keyA))
		// Some have forgotten the old key, and some have not.
		if err := all[0].SetKeys(4, keysOf(keyB)); err != nil {
			t.Fatal(err)
		}
		late := h.start(RoleWorker, "late", withKeys(keyB))
		h.waitAllAlive(20*time.Second, append(slices.Clone(all), late)...)
		rotate(h, all, 4, keysOf(keyB))
		outsider := h.start(RoleWorker, "outsider", withKeys(keyA))
		<-time.After(30 * time.Second)
		for _, m := range all {
			if _, known := m.Member(outsider.cfg.Name); known {
				t.Fatalf("%s knows a member with the old key: %s", m.cfg.Name, describe(m))
			}
			if worst := m.counts.get(func(c *counting) int { return c.worst }); worst != 0 {
				t.Fatalf("%s has seen %d dead", m.cfg.Name, worst)
			}
			if n := m.counts.rejectedFor(rejectedDecrypt); m == all[0] && n == 0 {
				t.Fatal("the outsider's packets were not counted")
			}
		}
	})
}

// rotate sets keys on one member after the other, in between which all of them
// gossip.
func rotate(h *harness, all []*testMember, version uint64, keys [][]byte) {
	h.t.Helper()
	for _, m := range all {
		if err := m.SetKeys(version, keys); err != nil {
			h.t.Fatal(err)
		}
		<-time.After(300 * time.Millisecond)
	}
	h.waitFor(5*time.Second, "all know that all have the keys", func() bool { return acknowledged(all, version, keys...) })
	for _, m := range all {
		if n := m.counts.rejectedFor(rejectedDecrypt); n != 0 {
			h.t.Fatalf("%s could not decrypt %d packets or streams", m.cfg.Name, n)
		}
	}
}

// Who starts over, because it had strangers among its members, keeps its keys.
func TestStartingOverKeepsTheNewestKeys(t *testing.T) {
	inBubble(t, func(h *harness) {
		of := func(cluster string) func(*Config) { return func(c *Config) { c.Meta.ClusterID = cluster } }
		a := h.start(RoleServer, "a", withKeys(keyA), of("one"))
		b := h.start(RoleServer, "b", withKeys(keyA))
		h.waitAllAlive(20*time.Second, a, b)
		for _, m := range []*testMember{a, b} {
			for version, keys := range [][][]byte{keysOf(keyA, keyB), keysOf(keyB, keyA), keysOf(keyB)} {
				if err := m.SetKeys(uint64(version+2), keys); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := b.UpdateMeta(func(m *Meta) { m.ClusterID = "another"; m.Keyring = Keyring{} }); err != nil {
			t.Fatal(err)
		}
		h.waitFor(20*time.Second, "b has dropped a", func() bool { _, known := b.Member(a.cfg.Name); return !known })
		c := h.start(RoleServer, "c", withKeys(keyB), of("another"), func(c *Config) { c.Seeds = []string{b.LocalAddr()} })
		h.waitAllAlive(20*time.Second, b, c)
		if seen, _ := c.Member(b.cfg.Name); seen.Meta.Keyring != KeyringOf(4, keysOf(keyB)) {
			t.Fatalf("b tells %+v of its keys", seen.Meta.Keyring)
		}
	})
}

func TestKeysThatCannotBeSet(t *testing.T) {
	open := func(keys ...[]byte) *Gossip {
		g, err := New(Config{Label: "l", BindAddr: "127.0.0.1:0", Keys: keys, Meta: Meta{Role: RoleServer, ID: "a"}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = g.Shutdown(context.Background()) })
		return g
	}
	encrypted, clear := open(keyA), open()
	for name, c := range map[string]struct {
		g    *Gossip
		keys [][]byte
		want string
	}{
		"none any more":   {encrypted, nil, "cannot be switched off"},
		"the first":       {clear, keysOf(keyA), "cannot be switched on"},
		"of 15 bytes":     {encrypted, keysOf(keyA, make([]byte, 15)), "key of 15 bytes: want 16, 24 or 32"},
		"of 17 bytes":     {encrypted, keysOf(make([]byte, 17)), "key of 17 bytes: want 16, 24 or 32"},
		"one twice":       {encrypted, keysOf(keyA, keyB, keyA), "two keys of digest " + DigestOf(keyA).String()},
		"one of no bytes": {encrypted, [][]byte{keyA, {}}, "key of 0 bytes"},
		"five": {encrypted, keysOf(keyA, keyB, keyC, bytes.Repeat([]byte("d"), 16), bytes.Repeat([]byte("e"), 16)),
			"5 keys: want at most 4"},
	} {
		before, keys := c.g.Keys()
		err := c.g.SetKeys(7, c.keys)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want it to say %q", name, err, c.want)
		}
		for _, key := range c.keys {
			if err != nil && len(key) > 0 && strings.Contains(err.Error(), string(key)) {
				t.Errorf("%s: the error has a key", name)
			}
		}
		if after, now := c.g.Keys(); after != before || !slices.EqualFunc(now, keys, bytes.Equal) {
			t.Errorf("%s: refused, and the keys have changed", name)
		}
	}
	if err := clear.SetKeys(3, nil); err != nil {
		t.Errorf("no keys where there are none: %v", err)
	}
}

// A packet that arrives while keys change is decrypted, whatever comes first.
func TestKeysChangeUnderReaders(t *testing.T) {
	k, err := newKeyring(1, keysOf(keyA, keyB, keyC))
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	var readers sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				// memberlist walks over the list as it is while it decrypts.
				if keys := k.ring.GetKeys(); !slices.ContainsFunc(keys, func(key []byte) bool { return bytes.Equal(key, keyA) }) {
					t.Error("the key that stays was not there")
					return
				}
			}
		})
	}
	for range 2000 {
		for _, keys := range [][][]byte{keysOf(keyA, keyC), keysOf(keyC, keyB, keyA), keysOf(keyA), keysOf(keyA, keyB, keyC)} {
			// A packet is being decrypted with what GetKeys has returned.
			walked := k.ring.GetKeys()
			before := slices.Clone(walked)
			if err := k.set(2, keys); err != nil {
				t.Fatal(err)
			}
			if !slices.EqualFunc(walked, before, bytes.Equal) {
				t.Fatal("the list that a packet is being decrypted with was rewritten")
			}
			installed := k.ring.GetKeys()
			if !bytes.Equal(installed[0], keys[0]) || len(installed) != len(keys) {
				t.Fatalf("%d keys are installed, want %d", len(installed), len(keys))
			}
		}
	}
	close(done)
	readers.Wait()
}

func TestKeyDigests(t *testing.T) {
	d := DigestOf(keyA)
	if got, err := ParseDigest(d.String()); err != nil || got != d || len(d.String()) != 8 {
		t.Fatalf("%s is read as %s, %v", d, got, err)
	}
	for _, bad := range []string{"", "1234567", "123456789", "1234567g", d.String() + " "} {
		if _, err := ParseDigest(bad); err == nil || !strings.Contains(err.Error(), "8 hexadecimal digits") {
			t.Errorf("%q: %v", bad, err)
		}
	}
	k := KeyringOf(3, keysOf(keyA, keyB))
	if !k.Has(DigestOf(keyB)) || k.Has(DigestOf(keyC)) || !k.Encrypts(d) || k.Encrypts(DigestOf(keyB)) || (Keyring{}).Encrypts(Digest{}) || (Keyring{}).Has(Digest{}) {
		t.Fatal("what the keyring says of its keys is wrong")
	}
	text, err := json.Marshal(k)
	if want := `{"digests":["` + d.String() + `","` + DigestOf(keyB).String() + `"],"version":3}`; err != nil || string(text) != want {
		t.Fatalf("%s, %v, want %s", text, err, want)
	}
}

// memberlist walks over the list of GetKeys without a lock; see removeOthers. This
// fails when a new release of it shares less, or more, than is said there.
func TestRemovingTheLastKeyLeavesReadersAlone(t *testing.T) {
	ring, err := memberlist.NewKeyring(keysOf(keyA, keyB, keyC), keyA)
	if err != nil {
		t.Fatal(err)
	}
	list := ring.GetKeys()
	before := slices.Clone(list)
	if err := ring.RemoveKey(keyC); err != nil {
		t.Fatal(err)
	}
	if err := ring.AddKey(bytes.Repeat([]byte("d"), 16)); err != nil {
		t.Fatal(err)
	}
	if !slices.EqualFunc(list, before, bytes.Equal) {
		t.Fatal("a reader's list was rewritten")
	}
}
