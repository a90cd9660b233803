package gossip

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

func TestPeersSurviveTheFile(t *testing.T) {
	want := []knownPeer{{"s/a", "10.0.0.1:7402"}, {"s/b c", "[fd00::1]:7402"}, {"w/1", "10.0.0.3:1"}}
	got, bad := decodePeers(encodePeers(want))
	if !slices.Equal(got, want) || bad != 0 {
		t.Fatalf("got %v and %d bad lines", got, bad)
	}
}

func TestDamagedPeersFileIsReadAsFarAsItGoes(t *testing.T) {
	file := "# comment\n\ns/a 10.0.0.1:7402\nw/x 10.0.0.2:7402\nx/y 10.0.0.2:7402\ns/b\ns/c 10.0.0.3\n\x00\xff\ns/d 10.0.0.4:7402"
	got, bad := decodePeers([]byte(file))
	if want := []knownPeer{{"s/a", "10.0.0.1:7402"}, {"w/x", "10.0.0.2:7402"}, {"s/d", "10.0.0.4:7402"}}; !slices.Equal(got, want) || bad != 4 {
		t.Fatalf("got %v and %d bad lines", got, bad)
	}
}

func TestMembersAreRememberedOnDisk(t *testing.T) {
	file := filepath.Join(t.TempDir(), "peers")
	inBubble(t, func(h *harness) {
		a := h.start(RoleServer, "a", func(c *Config) { c.KnownPeersFile = file })
		b := h.start(RoleServer, "b")
		w := h.start(RoleWorker, "w")
		h.waitAllAlive(20*time.Second, a, b, w)
		h.waitFor(5*time.Second, "the file names b and w", func() bool {
			got, err := os.ReadFile(file)
			return err == nil && string(got) == fmt.Sprintf("%ss/b %s\nw/w %s\n", peersHeader, b.LocalAddr(), w.LocalAddr())
		})
		info, err := os.Stat(file)
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Fatalf("mode %v, %v", info.Mode(), err)
		}
	})
	if left, _ := filepath.Glob(file + ".*"); len(left) > 0 {
		t.Fatalf("temporary files left: %v", left)
	}
}

func FuzzDecodePeers(f *testing.F) {
	f.Add([]byte("s/a 10.0.0.1:7402\n"))
	f.Add([]byte(peersHeader))
	f.Fuzz(func(t *testing.T, b []byte) {
		peers, _ := decodePeers(b)
		if again, bad := decodePeers(encodePeers(peers)); bad != 0 || !slices.Equal(again, peers) {
			t.Fatalf("%q became %q, %d bad", peers, again, bad)
		}
	})
}
