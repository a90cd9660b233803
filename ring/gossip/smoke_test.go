package gossip

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// socketMember is a member on real sockets of the loopback interface.
type socketMember struct {
	*Gossip
	done chan error
}

func startOnSockets(t *testing.T, cfg Config) *socketMember {
	t.Helper()
	cfg.BindAddr, cfg.Label, cfg.Keys = "127.0.0.1:0", testLabel, [][]byte{[]byte("0123456789abcdef0123456789abcdef")}
	g, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	m := &socketMember{Gossip: g, done: make(chan error, 1)}
	go func() { m.done <- g.Run(context.Background()) }()
	t.Cleanup(func() {
		if err := g.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return m
}

// awaitChange waits until cond holds, looking again at each change of g.
func awaitChange(t *testing.T, g *Gossip, what string, cond func() bool) {
	t.Helper()
	limit := time.After(20 * time.Second)
	for !cond() {
		select {
		case <-g.Changed():
		case <-limit:
			t.Fatalf("not within 20 s: %s; members: %+v", what, g.Members())
		}
	}
}

func statusIs(g *Gossip, name string, want Status) func() bool {
	return func() bool {
		m, _ := g.Member(name)
		return m.Status == want
	}
}

func TestOnRealSockets(t *testing.T) {
	file := filepath.Join(t.TempDir(), "peers")
	a := startOnSockets(t, Config{Meta: Meta{Role: RoleServer, ID: "a", Boot: 1}, KnownPeersFile: file})
	host, port, err := net.SplitHostPort(a.LocalAddr())
	if err != nil || host != "127.0.0.1" || port == "0" {
		t.Fatalf("LocalAddr is %q, %v", a.LocalAddr(), err)
	}
	if _, err := New(Config{BindAddr: a.LocalAddr(), Label: testLabel, Meta: Meta{Role: RoleServer, ID: "x"}}); err == nil ||
		!strings.Contains(err.Error(), "address already in use") {
		t.Fatalf("second bind of one port: %v", err)
	}
	b := startOnSockets(t, Config{Meta: Meta{Role: RoleServer, ID: "b", Boot: 1}, Seeds: []string{a.LocalAddr()}})
	w := startOnSockets(t, Config{Meta: Meta{Role: RoleWorker, ID: "w", Boot: 1}, Seeds: []string{"localhost:" + port}})
	awaitChange(t, a.Gossip, "a sees b", statusIs(a.Gossip, "s/b", Alive))
	awaitChange(t, a.Gossip, "a sees w", statusIs(a.Gossip, "w/w", Alive))
	awaitChange(t, b.Gossip, "b sees w", statusIs(b.Gossip, "w/w", Alive))
	answered := false
	for range 20 { // a machine that is busy testing may be silent for a moment
		answered = answered || a.Probe(t.Context(), "w/w")
	}
	if !answered {
		t.Fatal("no answer from the living")
	}
	if err := b.Leave(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-b.done; err != nil {
		t.Fatal(err)
	}
	awaitChange(t, a.Gossip, "b has left", statusIs(a.Gossip, "s/b", Left))
	if err := w.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	if a.Probe(t.Context(), "w/w") {
		t.Fatal("the dead answered")
	}
	awaitChange(t, a.Gossip, "w is dead", statusIs(a.Gossip, "w/w", Dead))
}

// A server that knows no seed any more finds the cluster from its file.
func TestKnownPeersFileIsEnoughToComeBack(t *testing.T) {
	file := filepath.Join(t.TempDir(), "peers")
	a := startOnSockets(t, Config{Meta: Meta{Role: RoleServer, ID: "a", Boot: 1}})
	if err := os.WriteFile(file, []byte(peersHeader+"garbage\ns/x not-an-address\ns/a "+a.LocalAddr()+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	b := startOnSockets(t, Config{Meta: Meta{Role: RoleServer, ID: "b", Boot: 2}, KnownPeersFile: file})
	awaitChange(t, b.Gossip, "b sees a", statusIs(b.Gossip, "s/a", Alive))
	awaitChange(t, a.Gossip, "a sees b", statusIs(a.Gossip, "s/b", Alive))
}

// Stopping must not wait for a machine that does not answer.
func TestStopDoesNotWaitForADial(t *testing.T) {
	// A listener whose queue nobody empties accepts and then says nothing.
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	a := startOnSockets(t, Config{Meta: Meta{Role: RoleServer, ID: "a"}, Seeds: []string{silent.Addr().String()}})
	c, err := silent.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	start := time.Now()
	if err := a.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(start); took > streamTimeout/2 {
		t.Fatalf("shutdown took %v with a connection open", took)
	}
}
