package api

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	grpccredentials "google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/leasehold-dev/leasehold/ownership/auth"
	pb "github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"github.com/leasehold-dev/leasehold/raftstore/state"
	"github.com/leasehold-dev/leasehold/ring/gossip"
)

var (
	gossipKeyA = []byte("AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA")
	gossipKeyB = []byte("BBBBBBBBBBBBBBBB")
)

// startGossip runs a member for a server's API to look at.
func startGossip(t *testing.T, id string, keys ...[]byte) *gossip.Gossip {
	t.Helper()
	g, err := gossip.New(gossip.Config{
		Label: "test", Keys: keys, BindAddr: "127.0.0.1:0", Meta: gossip.Meta{Role: gossip.RoleServer, ID: id, Boot: 1},
	})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- g.Run(context.Background()) }()
	t.Cleanup(func() {
		if err := g.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
		<-done
	})
	return g
}

// encryptedServer is a server of one whose gossip starts with a key, and whose log may
// hold a keyring.
func encryptedServer(t *testing.T) (*server, pb.GossipServiceClient, *gossip.Gossip) {
	t.Helper()
	g := startGossip(t, "s1", gossipKeyA)
	s := startCluster(t, 1, func(c *Config) { c.Gossip, c.GossipLabel = g, "test" }).leader(t)
	return s, pb.NewGossipServiceClient(s.dial(t)), g
}

func setKeyring(t *testing.T, s *server, cmds ...state.Command) {
	t.Helper()
	for _, c := range cmds {
		results, err := s.store.Propose(t.Context(), c)
		if err == nil {
			err = results[0].Err
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func gossiping(id uint64, worker string) *pb.AttachRequest {
	r := openRequest(id, worker, "orders")
	r.GetOpen().Gossip = true
	return r
}

// A worker that gossips gets label, keys and servers after opened and before the
// list, and once more at each change; one that does not gossip gets none.
func TestWorkersAreToldTheKeysOfGossip(t *testing.T) {
	s, _, g := encryptedServer(t)
	conn := s.dial(t)
	createKeyspace(t, conn, "orders", 1)
	p := dialWorker(t, conn, gossiping(11, "w1"))
	quiet := openWorker(t, conn, 12, "w2", "orders")
	if p.next().GetOpened() == nil {
		t.Fatal("opened did not come first")
	}
	// Before there is a keyring in the log, it is what the leader was started with.
	m := p.next().GetGossip()
	if m.GetLabel() != "test" || m.GetVersion() != 0 || len(m.GetKeys()) != 1 || !bytes.Equal(m.GetKeys()[0], gossipKeyA) {
		t.Fatalf("told %d keys of version %d", len(m.GetKeys()), m.GetVersion())
	}
	if len(m.GetSeeds()) != 1 || m.GetSeeds()[0] != g.LocalAddr() {
		t.Errorf("told the servers %v, want %s", m.GetSeeds(), g.LocalAddr())
	}
	if p.next().GetLeases() == nil {
		t.Fatal("the list did not come after it")
	}
	setKeyring(t, s, &state.RaiseFeature{Term: s.store.Status().Term, Level: state.FeatureAccess}, &state.SetKeyring{Keys: [][]byte{gossipKeyB, gossipKeyA}})
	m = p.until(func(m *pb.AttachResponse) bool { return m.GetGossip() != nil }).GetGossip()
	if m.GetVersion() != 1 || len(m.GetKeys()) != 2 || !bytes.Equal(m.GetKeys()[0], gossipKeyB) {
		t.Fatalf("told %d keys of version %d", len(m.GetKeys()), m.GetVersion())
	}
	again := dialWorker(t, conn, resumeRequest(11, "w1"))
	if again.next().GetOpened() == nil || again.next().GetGossip().GetVersion() != 1 {
		t.Error("a session that was resumed is not told")
	}
	quiet.keepAlive(1, 0)
	quiet.until(func(m *pb.AttachResponse) bool {
		if m.GetGossip() != nil {
			t.Error("a worker that does not gossip was told keys")
		}
		return m.GetKeepAlive() != nil
	})
}

// Keys go over encrypted connections and loopback only, unless somebody said that it
// does not matter; also when a follower has passed the call on.
func TestKeysAreToldInConfidence(t *testing.T) {
	at := func(addr string) net.Addr { return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(addr)) }
	from := func(addr string) metadata.MD { return metadata.Pairs(auth.ForwardedKey, "1", auth.FromKey, addr) }
	for name, c := range map[string]struct {
		addr     string
		tls      bool
		insecure bool
		md       metadata.MD
		want     bool
	}{
		"loopback":                            {addr: "127.0.0.1:1", want: true},
		"loopback, v6":                        {addr: "[::1]:1", want: true},
		"a network":                           {addr: "10.0.0.1:1"},
		"a network, TLS":                      {addr: "10.0.0.1:1", tls: true, want: true},
		"a network, --insecure":               {addr: "10.0.0.1:1", insecure: true, want: true},
		"a network, through a local follower": {addr: "127.0.0.1:1", md: from("10.0.0.1:1")},
		"claims to be local":                  {addr: "10.0.0.1:1", md: from("127.0.0.1:1")},
		"a name":                              {addr: "127.0.0.1:1", md: from("localhost:1")},
	} {
		p := &peer.Peer{Addr: at(c.addr)}
		if c.tls {
			p.AuthInfo = grpccredentials.TLSInfo{State: tls.ConnectionState{}}
		}
		ctx := metadata.NewIncomingContext(peer.NewContext(t.Context(), p), c.md)
		if got := (&API{cfg: Config{Insecure: c.insecure}}).confidential(ctx); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// O-89: what must not be done to the keys is refused by name, and no answer or error
// has a key.
func TestKeysThatMustNotChange(t *testing.T) {
	s, keys, _ := encryptedServer(t)
	ctx := t.Context()
	add := func(key []byte) (*pb.Keyring, error) {
		return keys.AddGossipKey(ctx, &pb.AddGossipKeyRequest{Key: key})
	}
	if _, err := add(nil); pb.DetailOf(err).GetReason() != pb.ReasonFeature {
		t.Errorf("below the level: %v", err)
	}
	setKeyring(t, s, &state.RaiseFeature{Term: s.store.Status().Term, Level: state.FeatureAccess}, &state.SetKeyring{Keys: [][]byte{gossipKeyA}})
	for _, n := range []int{1, 15, 17, 31, 33} {
		_, err := add(bytes.Repeat([]byte("k"), n))
		if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), fmt.Sprintf("%d bytes", n)) || !strings.Contains(err.Error(), "16, 24 or 32") {
			t.Errorf("a key of %d bytes: %v", n, err)
		}
	}
	for range 2 { // the second changes nothing
		k, err := add(gossipKeyB)
		if err != nil || k.GetVersion() != 2 || len(k.GetKeys()) != 2 || k.GetKeys()[1].GetPrimary() {
			t.Fatalf("add: %v, %v", k, err)
		}
		if text := k.String(); strings.Contains(text, string(gossipKeyB)) {
			t.Error("the answer has a key")
		}
	}
	a, b := gossip.DigestOf(gossipKeyA).String(), gossip.DigestOf(gossipKeyB).String()
	use := func(digest string, force bool) error {
		_, err := keys.UseGossipKey(ctx, &pb.UseGossipKeyRequest{Digest: digest, Force: force})
		return err
	}
	remove := func(digest string, force bool) error {
		_, err := keys.RemoveGossipKey(ctx, &pb.RemoveGossipKeyRequest{Digest: digest, Force: force})
		return err
	}
	// Nobody has told this member of the key: it lacks it.
	for what, c := range map[string]struct {
		err    error
		reason string
		words  []string
	}{
		"use what a member lacks":     {use(b, false), pb.ReasonConflict, []string{b, "server s1 (alive)"}},
		"use what there is not":       {use("00000000", true), pb.ReasonNotFound, []string{"00000000"}},
		"use nonsense":                {use("key", true), pb.ReasonInvalid, []string{"8 hexadecimal digits"}},
		"remove the primary by force": {remove(a, true), pb.ReasonConflict, []string{a, "encrypted with it"}},
		"remove what there is not":    {remove("00000000", true), pb.ReasonNotFound, []string{"00000000"}},
		"remove nonsense":             {remove("", true), pb.ReasonInvalid, []string{"8 hexadecimal digits"}},
		"a fifth":                     {fill(add), pb.ReasonConflict, []string{"at most 4"}},
	} {
		if got := pb.DetailOf(c.err).GetReason(); got != c.reason {
			t.Errorf("%s: %v", what, c.err)
			continue
		}
		for _, word := range c.words {
			if !strings.Contains(c.err.Error(), word) {
				t.Errorf("%s: %v, want it to say %q", what, c.err, word)
			}
		}
	}
	if err := use(b, true); err != nil {
		t.Errorf("use by force: %v", err)
	}
	if err := remove(a, false); pb.DetailOf(err).GetReason() != pb.ReasonConflict || !strings.Contains(err.Error(), "server s1 (alive)") {
		t.Errorf("remove what a member encrypts with: %v", err)
	}
	if err := remove(a, true); err != nil {
		t.Errorf("remove by force: %v", err)
	}
	k, err := keys.GetKeyring(ctx, &pb.GetKeyringRequest{})
	if err != nil || !k.GetEncrypted() || len(k.GetKeys()) != 3 || k.GetKeys()[0].GetDigest() != b || len(k.GetMembers()) != 1 {
		t.Fatalf("%v, %v", k, err)
	}
	if m := k.GetMembers()[0]; m.GetUpToDate() || m.GetRole() != "server" || m.GetId() != "s1" || len(m.GetDigests()) != 1 || m.GetDigests()[0] != a {
		t.Errorf("the member is %v", m)
	}
}

// fill adds keys until one is refused.
func fill(add func([]byte) (*pb.Keyring, error)) error {
	for range state.MaxGossipKeys {
		if _, err := add(nil); err != nil {
			return err
		}
	}
	return nil
}

// An error names a few members and counts the others.
func TestNamesOfMembers(t *testing.T) {
	var all keyMembers
	for i := range 12 {
		all = append(all, keyMember{role: gossip.RoleWorker, id: fmt.Sprintf("w%02d", i), status: "alive"})
	}
	some := all.names(func(m keyMember) bool { return m.id != "w00" })
	if !strings.HasPrefix(some, "worker w01 (alive), ") || !strings.HasSuffix(some, "worker w08 (alive), 3 more") {
		t.Error(some)
	}
	if none := all.names(func(keyMember) bool { return false }); none != "" {
		t.Error(none)
	}
}
