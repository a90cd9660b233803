package server

import (
	"bytes"
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/client"
	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"github.com/leasehold-dev/leasehold/ownership/pki/pkitest"
	"github.com/leasehold-dev/leasehold/ownership/worker"
	"github.com/leasehold-dev/leasehold/raftstore/state"
	"github.com/leasehold-dev/leasehold/ring/gossip"
)

var (
	oldKey   = []byte("the-first-gossip-key-of-32-bytes")
	otherKey = []byte("another-gossip-key")[:16]
)

// encrypted prepares servers that start with one key.
func encrypted(t *testing.T, n int) *cluster {
	t.Helper()
	c := freshCluster(t, n)
	for i := range c.configs {
		c.configs[i].GossipKey = oldKey
	}
	return c
}

// rotation changes the keys of gossip as an operator does.
type rotation struct {
	*cluster
	api leaseholdv1.GossipServiceClient
}

func (c *cluster) rotation(cl *client.Client) rotation { return rotation{c, cl.Gossip()} }

func (r rotation) status() *leaseholdv1.Keyring {
	r.t.Helper()
	var k *leaseholdv1.Keyring
	if err := r.steady(func() (err error) {
		k, err = r.api.GetKeyring(context.Background(), &leaseholdv1.GetKeyringRequest{})
		return err
	}); err != nil {
		r.t.Fatal(err)
	}
	return k
}

// settled waits until so many members have acknowledged a version.
func (r rotation) settled(version uint64, members int) *leaseholdv1.Keyring {
	r.t.Helper()
	var k *leaseholdv1.Keyring
	eventually(r.t, 30*time.Second, "all members have acknowledged the keys", func() bool {
		k = r.status()
		behind := slices.ContainsFunc(k.GetMembers(), func(m *leaseholdv1.KeyringMember) bool { return !m.GetUpToDate() || m.GetStatus() != "alive" })
		return k.GetVersion() == version && len(k.GetMembers()) == members && !behind
	})
	return k
}

func (r rotation) add(key []byte) (digest string) {
	r.t.Helper()
	k, err := r.api.AddGossipKey(context.Background(), &leaseholdv1.AddGossipKeyRequest{Key: key})
	if err != nil {
		r.t.Fatal(err)
	}
	return k.GetKeys()[len(k.GetKeys())-1].GetDigest()
}

func (r rotation) use(digest string, force bool) error {
	_, err := r.api.UseGossipKey(context.Background(), &leaseholdv1.UseGossipKeyRequest{Digest: digest, Force: force})
	return err
}

func (r rotation) remove(digest string, force bool) error {
	_, err := r.api.RemoveGossipKey(context.Background(), &leaseholdv1.RemoveGossipKeyRequest{Digest: digest, Force: force})
	return err
}

// O-89: keys change under load, and nobody loses anything by it. No worker was ever
// given a key.
func TestKeysOfGossipChangeUnderLoad(t *testing.T) {
	t.Parallel()
	c := encrypted(t, 3)
	c.startAll()
	cl := c.client()
	createKeyspace(t, cl, "orders", 12, 10*time.Second, leaseholdv1.Takeover_TAKEOVER_FENCED)
	crew := newCrew(t, c.servers())
	crew.joinAll("orders", "w1", "w2")
	eventually(t, 40*time.Second, "all is held", func() bool { return crew.held("w1") == 6 && crew.held("w2") == 6 })
	r := c.rotation(cl)
	r.settled(1, 5)
	tokens, revision := crew.tokens(), c.revision(cl)
	dead := c.watchMembers()
	writes := c.writeSteadily(50)

	first := gossip.DigestOf(oldKey).String()
	second := r.add(nil)
	r.settled(2, 5)
	if err := r.remove(first, true); err == nil {
		t.Error("the key that gossip is encrypted with was removed")
	}
	if err := r.use(second, false); err != nil {
		t.Fatal(err)
	}
	r.settled(3, 5)
	if err := r.remove(first, false); err != nil {
		t.Fatal(err)
	}
	k := r.settled(4, 5)
	if len(k.GetKeys()) != 1 || k.GetKeys()[0].GetDigest() != second || !k.GetKeys()[0].GetPrimary() || k.GetKeys()[0].GetMembers() != 5 {
		t.Errorf("the keyring is %v", k)
	}
	// A worker that comes now has heard of no other key, and one with the old key
	// is nobody.
	crew.joinAll("orders", "w3")
	r.settled(4, 6)

	writes()
	if seen := dead(); len(seen) > 0 {
		t.Errorf("seen dead: %v", seen)
	}
	now := crew.tokens()
	maps.DeleteFunc(now, func(p uint32, _ uint64) bool { return crew.owner(p) == "w3" })
	for p, token := range now {
		if tokens[p] != token {
			t.Errorf("partition %d has been granted anew, to %s", p, crew.owner(p))
		}
	}
	if lost := c.eventsAfter(cl, revision, "session_expire", "expire", "revoke"); len(lost) > 0 {
		t.Errorf("lost: %v", lost)
	}
	for _, e := range c.eventsAfter(cl, revision) {
		if strings.Contains(e.String(), string(oldKey)) {
			t.Errorf("an event has a key: %v", e)
		}
	}
}

// watchMembers looks at every server's members until it is told to stop, and returns
// who was seen dead.
func (c *cluster) watchMembers() (stop func() []string) {
	done, gone := make(chan struct{}), make(chan []string)
	go func() {
		var dead []string
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			for _, r := range c.running {
				for _, m := range r.gossip.Members() {
					if m.Status == gossip.Dead {
						dead = append(dead, m.Name)
					}
				}
			}
			select {
			case <-done:
				gone <- dead
				return
			case <-tick.C:
			}
		}
	}()
	return func() []string {
		close(done)
		return <-gone
	}
}

// A server that is down holds up a change of keys by name. When it was overruled
// and comes back with the old keys, nobody takes its gossip; but Raft does, and so
// it learns the new ones.
func TestServerThatWasDownWhileKeysChanged(t *testing.T) {
	t.Parallel()
	c := encrypted(t, 3)
	c.startAll()
	r := c.rotation(c.client())
	r.settled(1, 3)
	if k, err := readKeyring(filepath.Join(c.configs[2].DataDir, keyringName)); err != nil || k.Version != 1 {
		t.Errorf("what all have acknowledged is not written down: version %d, %v", k.Version, err)
	}
	if info, err := os.Stat(filepath.Join(c.configs[2].DataDir, keyringName)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file of the keys: %v, %v", info.Mode(), err)
	}
	c.vanish(2)
	first := gossip.DigestOf(oldKey).String()
	second := r.add([]byte("key-of-24-bytes-it-is-so"))
	wantRefusal(t, "use a key that s3 does not have", r.use(second, false), leaseholdv1.ReasonConflict, second, "server s3")
	if k := r.status(); k.GetVersion() != 2 || !k.GetKeys()[0].GetPrimary() || k.GetKeys()[0].GetDigest() != first {
		t.Fatalf("after a refusal the keyring is %v", k)
	}
	if err := r.use(second, true); err != nil {
		t.Fatal(err)
	}
	wantRefusal(t, "remove a key that s3 encrypts with", r.remove(first, false), leaseholdv1.ReasonConflict, first, "server s3")
	if err := r.remove(first, true); err != nil {
		t.Fatal(err)
	}
	eventually(t, 30*time.Second, "the others have the new key alone", func() bool {
		for _, s := range c.running[:2] {
			if version, keys := s.gossip.Keys(); version != 4 || len(keys) != 1 {
				return false
			}
		}
		return true
	})

	s := c.start(2)
	if version, keys := s.gossip.Keys(); version > 4 || !bytes.Equal(keys[0], oldKey) {
		t.Fatalf("s3 comes back with version %d", version)
	}
	c.ready()
	r.settled(4, 3)

	// From now on the files say it, not the key file; and who comes back with them
	// is let in at once.
	book := c.logged(2)
	c.stopServer(2)
	unfinished := unfinishedKeyring(filepath.Join(c.configs[2].DataDir, keyringName))
	if err := os.WriteFile(unfinished, []byte("version 3\nc2Vj"), 0o600); err != nil { // the power was cut
		t.Fatal(err)
	}
	if s = c.start(2); !bytes.Equal(first4(s), []byte("key-")) {
		t.Fatal("s3 has forgotten the keys")
	}
	c.ready()
	r.settled(4, 3)
	if _, err := os.Stat(unfinished); !os.IsNotExist(err) {
		t.Errorf("keys that were written in part are still there: %v", err)
	}
	if n := book.count("have changed since --gossip-key-file was written"); n != 1 {
		t.Errorf("%d lines tell that the data directory wins over the key file", n)
	}
}

// first4 are the first bytes of the key that a server encrypts with.
func first4(s *Server) []byte {
	_, keys := s.gossip.Keys()
	return keys[0][:4]
}

// With TLS and encrypted gossip a worker needs addresses of servers and its
// certificate: nothing else, and nobody gives it a key by hand.
func TestWorkerNeedsAddressesAndItsCertificateAlone(t *testing.T) {
	t.Parallel()
	ca := pkitest.New(t)
	c := encrypted(t, 1)
	c.configs[0].TLS = ca.Server("s1")
	c.startAll()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	cl, err := client.Dial(ctx, client.Config{Servers: c.servers(), TLS: ca.Client(ca.Operator("o"))})
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	createKeyspace(t, cl, "orders", 1, 10*time.Second, leaseholdv1.Takeover_TAKEOVER_FENCED)
	startHand(t, worker.Config{Servers: c.servers(), ID: "w1", TLS: ca.Client(ca.Worker("w1", "orders"))}, "orders", untilTold)
	want := gossip.KeyringOf(1, [][]byte{oldKey})
	eventually(t, 30*time.Second, "the worker is a member with the cluster's key", func() bool {
		m, ok := c.running[0].gossip.Member(gossip.Name(gossip.RoleWorker, "w1"))
		return ok && m.Status == gossip.Alive && m.Meta.Keyring == want
	})
	// It may not look at the keyring, nor change it.
	as, err := client.Dial(ctx, client.Config{Servers: c.servers(), TLS: ca.Client(ca.Worker("w1", "orders"))})
	if err != nil {
		t.Fatal(err)
	}
	defer as.Close()
	_, err = as.Gossip().GetKeyring(ctx, &leaseholdv1.GetKeyringRequest{})
	wantRefusal(t, "a worker looks at the keyring", err, leaseholdv1.ReasonDenied)
	_, err = as.Gossip().AddGossipKey(ctx, &leaseholdv1.AddGossipKeyRequest{})
	wantRefusal(t, "a worker adds a key", err, leaseholdv1.ReasonDenied)
}

// O-89: who has no key or another one is no member, and is counted.
func TestOutsidersOnTheGossipPort(t *testing.T) {
	t.Parallel()
	c := encrypted(t, 1)
	c.startAll()
	for name, keys := range map[string][][]byte{"without": nil, "another": {otherKey}} {
		before := decryptRejects(c)
		outsider, err := gossip.New(gossip.Config{
			Label: c.configs[0].GossipLabel, Keys: keys, BindAddr: "127.0.0.1:0", Seeds: []string{c.gossip[0]}, Logger: testLogger(t, name),
			Meta: gossip.Meta{Role: gossip.RoleWorker, ID: name, Boot: 1},
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- outsider.Run(ctx) }()
		eventually(t, 15*time.Second, "the refusals of "+name+" are counted", func() bool { return decryptRejects(c) != before })
		if n := len(c.running[0].gossip.Members()); n != 1 || len(outsider.Members()) != 1 {
			t.Errorf("%s: the server has %d members, the outsider %d", name, n, len(outsider.Members()))
		}
		cancel()
		<-done
	}
}

func decryptRejects(c *cluster) string {
	for line := range strings.Lines(c.metrics(0)) {
		if strings.HasPrefix(line, `leasehold_gossip_rejected_packets_total{reason="decrypt"}`) {
			return line
		}
	}
	return ""
}

// Where gossip is in the clear there is nothing to change, and that is said.
func TestNoKeysToChangeInTheClear(t *testing.T) {
	t.Parallel()
	c := quickCluster(t, 1)
	r := c.rotation(c.client())
	if k := r.status(); k.GetEncrypted() || len(k.GetKeys()) != 0 || len(k.GetMembers()) != 1 {
		t.Errorf("the keyring is %v", k)
	}
	_, err := r.api.AddGossipKey(t.Context(), &leaseholdv1.AddGossipKeyRequest{})
	wantRefusal(t, "add a key", err, leaseholdv1.ReasonConflict, "in the clear", "--gossip-key-file")
}

func TestKeyringFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), keyringName)
	if k, err := readKeyring(path); err != nil || k.Version != 0 || len(k.Keys) != 0 {
		t.Fatalf("no file: %v, %v", k, err)
	}
	want := state.Keyring{Version: 7, Keys: [][]byte{oldKey, otherKey}}
	for range 2 {
		if err := writeKeyring(path, want); err != nil {
			t.Fatal(err)
		}
	}
	got, err := readKeyring(path)
	if err != nil || got.Version != 7 || !sameKeys(got.Keys, want.Keys) {
		t.Fatalf("%v, %v", got, err)
	}
	if names, err := os.ReadDir(filepath.Dir(path)); err != nil || len(names) != 1 {
		t.Errorf("beside it: %v, %v", names, err)
	}
	good := string(encodeKeyring(want))
	secret := "c2VjcmV0LXNlY3JldC0xNg=="
	for name, c := range map[string]struct{ text, want string }{
		"nothing":         {"", "no key is in it"},
		"no version":      {secret + "\n", "line 1"},
		"no number":       {"version x\n" + secret + "\n", "line 1"},
		"no key":          {"version 3\n", "no key is in it"},
		"cut":             {good[:len(good)-3], "line 4"},
		"no base64":       {"version 3\n" + secret + "!\n", "line 2: not base64"},
		"a key too short": {"version 3\n\nAAAA\n", "line 3: key of 3 bytes"},
		"a key twice":     {"version 3\n" + secret + "\n" + secret + "\n", "two keys of digest"},
		"too many":        {good + good, "line 6"},
		"too large":       {good + strings.Repeat("#\n", maxKeyringBytes), "at most 4096"},
	} {
		if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := readKeyring(path)
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v, want it to say %q and name the file", name, err, c.want)
		}
		if err != nil && strings.Contains(err.Error(), secret) {
			t.Errorf("%s: the error has a key", name)
		}
	}
	cfg := DefaultConfig()
	cfg.ID, cfg.DataDir, cfg.BootstrapExpect, cfg.Logger = "s1", filepath.Dir(path), 1, testLogger(t, "s1")
	cfg.GRPCAddr, cfg.RaftAddr, cfg.GossipAddr, cfg.HTTPAddr = "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0"
	if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("a server with a damaged file: %v", err)
	}
}

func FuzzDecodeKeyring(f *testing.F) {
	f.Add(encodeKeyring(state.Keyring{Version: 7, Keys: [][]byte{oldKey, otherKey}}))
	f.Add([]byte("version 1\nAAAA\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		k, err := decodeKeyring(b)
		if err != nil {
			return
		}
		again, err := decodeKeyring(encodeKeyring(k))
		if err != nil || again.Version != k.Version || !sameKeys(again.Keys, k.Keys) {
			t.Fatalf("%v became %v, %v", k, again, err)
		}
	})
}
