package gossip

import (
	"errors"
	"testing"

	"pgregory.net/rapid"
)

var fullMeta = Meta{
	Role: RoleServer, ID: "server-1", Boot: 1 << 60, GRPCAddr: "10.0.0.1:7400", RaftAddr: "10.0.0.1:7401",
	HTTPAddr: "10.0.0.1:7480", Version: "v0.1.0", Expect: 3, HasState: true, Leaving: true,
	FormationHash: "0123456789abcdef", Session: 1<<63 - 1,
	ClusterID: "0123456789abcdef0123456789abcdef", Store: "0123456789ab", Feature: 7,
	Keyring: KeyringOf(9, [][]byte{keyA, keyB}),
}

func TestMetaSurvivesTheWire(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringN(0, -1, 60)
		m := Meta{
			Role: rapid.SampledFrom([]Role{RoleServer, RoleWorker}).Draw(t, "role"),
			ID:   text.Draw(t, "id"), Boot: rapid.Uint64().Draw(t, "boot"),
			GRPCAddr: text.Draw(t, "grpc"), RaftAddr: text.Draw(t, "raft"), HTTPAddr: text.Draw(t, "http"),
			Version: text.Draw(t, "version"), Expect: rapid.IntRange(0, maxExpect).Draw(t, "expect"),
			HasState: rapid.Bool().Draw(t, "state"), Leaving: rapid.Bool().Draw(t, "leaving"),
			FormationHash: text.Draw(t, "formation"), Session: rapid.Uint64().Draw(t, "session"),
			Keyring:   drawKeyring(t),
			ClusterID: text.Draw(t, "cluster"), Store: text.Draw(t, "store"), Feature: rapid.Uint32Range(0, maxFeature).Draw(t, "feature"),
		}
		b, err := encodeMeta("l", m)
		if err != nil {
			t.Fatal(err)
		}
		got, err := decodeMeta("l", append(b, "a later field"...))
		if err != nil || got != m {
			t.Fatalf("sent %+v, got %+v, %v", m, got, err)
		}
		old := len(b) - len(m.Keyring.append(nil))
		for cut := range b {
			if cut == old {
				continue // of a release without keyrings
			}
			if _, err := decodeMeta("l", b[:cut]); err == nil {
				t.Fatalf("cut to %d of %d bytes: accepted", cut, len(b))
			}
		}
	})
}

func drawKeyring(t *rapid.T) Keyring {
	var keys [][]byte
	for range rapid.IntRange(0, MaxKeys).Draw(t, "keys") {
		keys = append(keys, rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "key"))
	}
	return KeyringOf(rapid.Uint64().Draw(t, "keyring"), keys)
}

// Every packet about a member carries it.
func TestMetaIsSmall(t *testing.T) {
	b, err := encodeMeta("l", fullMeta)
	if err != nil {
		t.Fatal(err)
	}
	if len(b) > 190 {
		t.Fatalf("a full server meta has %d bytes", len(b))
	}
	b, err = encodeMeta("l", Meta{
		Role: RoleWorker, ID: "orders-7f9c6d5b4-x2x7p", Boot: 12, GRPCAddr: "http://10.244.17.203:8080", Version: "v0.1.0",
		Session: 1<<63 - 1, ClusterID: fullMeta.ClusterID,
	})
	if err != nil || len(b) > 130 {
		t.Fatalf("a worker's meta has %d bytes, %v", len(b), err)
	}
}

func TestMetaOfAnotherCluster(t *testing.T) {
	b, err := encodeMeta("one", fullMeta)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := decodeMeta("two", b); !errors.Is(err, errOtherCluster) {
		t.Fatalf("got %v", err)
	}
}

func FuzzDecodeMeta(f *testing.F) {
	b, err := encodeMeta("l", fullMeta)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add(b[:20])
	f.Add(b[:len(b)-5])
	f.Add(b[:len(b)-len(fullMeta.Keyring.append(nil))])
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := decodeMeta("l", b)
		if err != nil {
			return
		}
		again, err := encodeMeta("l", m)
		if err != nil {
			return // longer than may be sent, but harmless to receive
		}
		if got, err := decodeMeta("l", again); err != nil || got != m {
			t.Fatalf("%+v became %+v, %v", m, got, err)
		}
	})
}

func TestGoneComparesGenerations(t *testing.T) {
	at := func(s Status, boot uint64) Member { return Member{Status: s, Meta: Meta{Boot: boot}} }
	for _, c := range []struct {
		m    Member
		boot uint64
		want bool
	}{
		{at(Alive, 5), 5, false},
		{at(Leaving, 5), 5, false},
		{at(Alive, 5), 4, true},  // a newer process has taken its place
		{at(Alive, 5), 6, false}, // not heard of yet
		{at(Dead, 5), 5, true},
		{at(Left, 5), 5, true},
		{at(Dead, 5), 4, true},
		{at(Dead, 5), 6, false}, // an old death says nothing about a new process
		{Member{}, 0, false},
	} {
		if got := c.m.Gone(c.boot); got != c.want {
			t.Errorf("%s of boot %d: Gone(%d) = %t", c.m.Status, c.m.Meta.Boot, c.boot, got)
		}
	}
}
