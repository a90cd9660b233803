package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"

	"google.golang.org/grpc/metadata"

	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"github.com/leasehold-dev/leasehold/ownership/worker"
	"github.com/leasehold-dev/leasehold/ring/gossip"
)

// DESIGN §9: off loopback without TLS a server does not even open its data
// directory, whichever listener it is.
func TestOffLoopbackWithoutInsecureIsRefused(t *testing.T) {
	for flag, set := range map[string]func(*Config){
		"--grpc-addr":   func(c *Config) { c.GRPCAddr = "192.0.2.1:7400" },
		"--raft-addr":   func(c *Config) { c.RaftAddr = "192.0.2.1:7401" },
		"--gossip-addr": func(c *Config) { c.GossipAddr = "0.0.0.0:7402"; c.Advertise = "192.0.2.1" },
		"--http-addr":   func(c *Config) { c.HTTPAddr = "[::]:7480"; c.Advertise = "192.0.2.1" },
	} {
		cfg := DefaultConfig()
		cfg.ID, cfg.DataDir = "s1", filepath.Join(t.TempDir(), "data")
		set(&cfg)
		_, err := New(cfg)
		if err == nil || !strings.Contains(err.Error(), flag) || !strings.Contains(err.Error(), "--insecure") {
			t.Errorf("%s: %v", flag, err)
		}
		if _, err := os.Stat(cfg.DataDir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: the data directory was made: %v", flag, err)
		}
	}
}

// A second server on one data directory is refused, and the first goes on.
func TestSecondServerOnOneDataDirectory(t *testing.T) {
	t.Parallel()
	c := quickCluster(t, 1)
	second := c.configs[0]
	second.GRPCAddr, second.RaftAddr, second.GossipAddr = "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0"
	_, err := New(second)
	if err == nil || !strings.Contains(err.Error(), second.DataDir) {
		t.Errorf("second server: %v", err)
	}
	createKeyspace(t, c.client(), "orders", 1, 2*time.Second, leaseholdv1.Takeover_TAKEOVER_STRICT)
}

// A log with a flipped bit is refused by New with the place in the error. A
// snapshot that is none is set aside, since the log reaches back to the start.
// With the log mended the server has all it had.
// (Every bit, sealed segments cut off and damaged snapshots: raftstore.)
func TestDamagedFilesAreRefusedByName(t *testing.T) {
	t.Parallel()
	c := quickCluster(t, 1)
	cl := c.client()
	for i := range 20 {
		createKeyspace(t, cl, fmt.Sprintf("k%d", i), 1, 2*time.Second, leaseholdv1.Takeover_TAKEOVER_STRICT)
	}
	c.stopServer(0)
	names, err := filepath.Glob(filepath.Join(c.configs[0].DataDir, "log", "*.wal"))
	if err != nil || len(names) == 0 {
		t.Fatalf("segments: %v, %v", names, err)
	}
	good, err := os.ReadFile(names[0])
	if err != nil {
		t.Fatal(err)
	}
	at := strings.Index(string(good), "k3")
	if at < 0 {
		t.Fatal("the log does not have the keyspace's name")
	}
	flipped := slices.Clone(good)
	flipped[at] ^= 4
	refused := func(what string) {
		t.Helper()
		s, err := New(c.configs[0])
		if err == nil {
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			_ = s.Run(ctx)
			t.Errorf("%s: the server starts", what)
			return
		}
		if !strings.Contains(err.Error(), c.configs[0].DataDir) {
			t.Errorf("%s: the error does not say where: %v", what, err)
		}
		t.Logf("%s: %v", what, err)
	}
	write := func(name string, data []byte) {
		t.Helper()
		if err := os.WriteFile(name, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(names[0], flipped)
	refused("flipped bit in the log")
	write(names[0], good)
	snapshot := filepath.Join(c.configs[0].DataDir, "snapshots", "2-10-1700000000000")
	if err := os.MkdirAll(snapshot, 0o700); err != nil {
		t.Fatal(err)
	}
	meta, err := json.Marshal(map[string]any{"Version": 1, "ID": filepath.Base(snapshot), "Index": 10, "Term": 2, "Size": 9})
	if err != nil {
		t.Fatal(err)
	}
	write(filepath.Join(snapshot, "meta.json"), meta)
	write(filepath.Join(snapshot, "state.bin"), []byte("not state"))
	c.startAll()
	if aside, err := filepath.Glob(filepath.Join(c.configs[0].DataDir, "*.damaged")); err != nil || len(aside) != 1 {
		t.Errorf("snapshots set aside: %v, %v", aside, err)
	}
	if _, err := c.client().Keyspaces().GetKeyspace(t.Context(), &leaseholdv1.GetKeyspaceRequest{Name: "k19"}); err != nil {
		t.Errorf("with the files mended: %v", err)
	}
}

// Garbage on every port of a live server, by UDP and TCP, with and without the
// cluster's label: nobody is disturbed and no member is made of it.
func TestGarbageOnEveryPortDisturbsNobody(t *testing.T) {
	t.Parallel()
	c := quickCluster(t, 1)
	cl := c.client()
	createKeyspace(t, cl, "orders", 4, 10*time.Second, leaseholdv1.Takeover_TAKEOVER_STRICT)
	crew := newCrew(t, c.servers())
	crew.join("w1", "orders")
	eventually(t, 10*time.Second, "w1 holds all and gossips", func() bool {
		return crew.held("w1") == 4 && c.workersByID(cl)["w1"].GetGossip() == "alive"
	})
	before := crew.tokens()
	random := rand.New(rand.NewPCG(1, 2))
	garbage := func(label bool) []byte {
		p := make([]byte, 1+random.IntN(300))
		for i := range p {
			p[i] = byte(random.Uint32())
		}
		if label {
			p, _ = memberlist.AddLabelHeaderToPacket(p, c.configs[0].GossipLabel)
		}
		return p
	}
	addrs := c.running[0].Addrs()
	udp, err := net.Dial("udp", addrs.Gossip)
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close()
	for i := range 2000 {
		_, _ = udp.Write(garbage(i%2 == 0))
	}
	for _, addr := range []string{addrs.Gossip, addrs.Raft, addrs.GRPC, addrs.HTTP} {
		for i := range 40 {
			conn, err := net.Dial("tcp", addr)
			if err != nil {
				t.Fatalf("%s: %v", addr, err)
			}
			_, _ = conn.Write(garbage(i%2 == 0))
			conn.Close()
		}
	}
	eventually(t, 10*time.Second, "the packets are counted", c.gossipRejects)
	for _, m := range c.running[0].gossip.Members() {
		if m.Meta.ID != "s1" && m.Meta.ID != "w1" {
			t.Errorf("member %+v", m)
		}
	}
	if !c.running[0].store.IsLeader() || !c.workersByID(cl)["w1"].GetAttached() {
		t.Error("somebody was disturbed")
	}
	eventually(t, 10*time.Second, "w1 is alive in gossip", func() bool { return c.workersByID(cl)["w1"].GetGossip() == "alive" })
	crew.quiet(time.Second)
	for p, token := range crew.tokens() {
		if token != before[p] {
			t.Errorf("partition %d went from token %d to %d", p, before[p], token)
		}
	}
}

// gossipRejects tells whether the first server has counted packets that do
// not carry its label.
func (c *cluster) gossipRejects() bool {
	for line := range strings.Lines(c.metrics(0)) {
		if strings.HasPrefix(line, "leasehold_gossip_") && strings.Contains(line, `"label"`) && !strings.HasSuffix(line, " 0\n") {
			return true
		}
	}
	return false
}

// A worker that gossips under another cluster's label is no member here: its
// packets are refused, and its session does not depend on them.
func TestMemberOfAnotherClusterIsRefused(t *testing.T) {
	t.Parallel()
	c := quickCluster(t, 1)
	addr := c.running[0].Addrs().Gossip
	stranger, err := gossip.New(gossip.Config{
		Label: "another-cluster", BindAddr: "127.0.0.1:0", Seeds: []string{addr}, Logger: testLogger(t, "stranger"),
		Meta: gossip.Meta{Role: gossip.RoleWorker, ID: "stranger", Boot: 1},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- stranger.Run(ctx) }()
	defer func() {
		cancel()
		<-done
	}()
	eventually(t, 15*time.Second, "the refusals are counted", c.gossipRejects)
	if _, known := c.running[0].gossip.Member(gossip.Name(gossip.RoleWorker, "stranger")); known {
		t.Error("the stranger is a member")
	}
	if len(stranger.Members()) > 1 {
		t.Errorf("the stranger learned of %v", stranger.Members())
	}
}

// A worker that knows another cluster by its id is refused by name, and so is
// one whose keyspace there is none of; both end, and nothing is opened.
func TestWorkerOfAnotherClusterOrKeyspaceIsRefused(t *testing.T) {
	t.Parallel()
	c := quickCluster(t, 1)
	cl := c.client()
	createKeyspace(t, cl, "orders", 1, 2*time.Second, leaseholdv1.Takeover_TAKEOVER_STRICT)
	h := startHand(t, worker.Config{Servers: c.servers(), ID: "w1", Gossip: worker.GossipOff}, "nothing", untilTold)
	if err := h.wait(); err == nil || !strings.Contains(err.Error(), "nothing") {
		t.Errorf("unknown keyspace: %v", err)
	}
	stream, err := cl.Sessions().Attach(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&leaseholdv1.AttachRequest{Request: &leaseholdv1.AttachRequest_Open{Open: &leaseholdv1.OpenSession{
		SessionId: 7, WorkerId: "w2", ClusterId: "another", Keyspaces: []string{"orders"},
	}}}); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); leaseholdv1.ReasonOf(err) != leaseholdv1.ReasonWrongCluster {
		t.Errorf("another cluster: %v", err)
	}
	if ws := c.workersByID(cl); len(ws) != 0 {
		t.Errorf("workers: %v", ws)
	}
}

// A request above the limit is refused by gRPC and HTTP with the limit in the
// answer, and the next one is served.
func TestRequestAboveTheLimit(t *testing.T) {
	t.Parallel()
	c := quickCluster(t, 1)
	cl := c.client()
	createKeyspace(t, cl, "orders", 1, 2*time.Second, leaseholdv1.Takeover_TAKEOVER_STRICT)
	for _, size := range []int{2 << 20, 16 << 20} {
		key := strings.Repeat("k", size)
		_, err := cl.Partitions().Locate(t.Context(), &leaseholdv1.LocateRequest{Keyspace: "orders", Key: []byte(key)})
		if err == nil || !strings.Contains(err.Error(), "ResourceExhausted") {
			t.Errorf("%d bytes by gRPC: %.300v", size, err)
		}
		code, m := c.postJSON(0, leaseholdv1.PartitionService_Locate_FullMethodName, map[string]any{"keyspace": "orders", "key": []byte(key)})
		if code != http.StatusTooManyRequests || m["code"] != "resource_exhausted" {
			t.Errorf("%d bytes as JSON: %d %.300v", size, code, m)
		}
	}
	if _, err := cl.Partitions().Locate(t.Context(), &leaseholdv1.LocateRequest{Keyspace: "orders", Key: []byte(strings.Repeat("k", 1<<20))}); err != nil {
		t.Errorf("1 MiB: %v", err)
	}
	ctx := metadata.AppendToOutgoingContext(t.Context(), "x", strings.Repeat("x", maxHeaderBytes))
	if _, err := cl.Partitions().Locate(ctx, &leaseholdv1.LocateRequest{Keyspace: "orders", Key: []byte("k")}); err == nil || !strings.Contains(err.Error(), "header list size") {
		t.Errorf("headers of %d bytes: %.300v", maxHeaderBytes, err)
	}
}
