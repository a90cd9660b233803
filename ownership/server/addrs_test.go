package server

import (
	"net"
	"os"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"github.com/leasehold-dev/leasehold/ring/gossip"
)

// O-34: each form of an address works, or is refused by a text that names the
// flag, the value and one that would do.
func TestAddressForms(t *testing.T) {
	const works = ""
	cases := []struct {
		value                 string
		bind, advertise, join string // part of the refusal, or works
	}{
		{"::1", "[::1]:7400", works, "[::1]:7400"},
		{"[::1]", "[::1]:7400", works, "[::1]:7400"},
		{"[::1]:7946", works, "without a port", works},
		{"fe80::1%lo", "[::1]:7400", "with a zone", "[::1]:7400"},
		{"[fe80::1%lo]:7946", "with a zone", "with a zone", "with a zone"},
		{"0.0.0.0", "host:port", "not a wildcard", "host:port"},
		{"0.0.0.0:7946", "cannot be told to others", "without a port", "a wildcard is nobody's address"},
		{"[::]:7946", "cannot be told to others", "without a port", "a wildcard is nobody's address"},
		{"::", "[::1]:7400", "not a wildcard", "[::1]:7400"},
		{":7946", "cannot be told to others", "without a port", "a wildcard is nobody's address"},
		{"", "host:port", works, "host:port"}, // nothing advertised: that of the listeners
		{"127.0.0.1", "host:port", works, "host:port"},
		{"localhost:7946", works, "without a port", works},
		{"s1.example.org", "host:port", works, "host:port"},
		{"s1.example.org:7946", works, "without a port", works}, // looked up when it is used; one of its addresses is taken
		{"fd00::1,10.0.0.1", "[::1]:7400", "not a list", "[::1]:7400"},
		{"10.0.0.1,10.0.0.2:7946", "not a list", "not a list", "not a list"},
		{"10.0.0.1 :7946", "not a list", "not a list", "not a list"},
		{"127.0.0.1:0", works, "without a port", "port 0 is nobody's"},
		{"127.0.0.1:70000", "want 0 to 65535", "without a port", "want 0 to 65535"},
		{"127.0.0.1:-1", "want 0 to 65535", "without a port", "want 0 to 65535"},
		{"127.0.0.1:http", "want 0 to 65535", "without a port", "want 0 to 65535"},
		{"[127.0.0.1:7946", "host:port", "without a port", "host:port"},
	}
	for _, c := range cases {
		for _, flag := range []struct {
			name, want string
			set        func(*Config)
		}{
			{"--grpc-addr", c.bind, func(cfg *Config) { cfg.GRPCAddr = c.value }},
			{"--raft-addr", c.bind, func(cfg *Config) { cfg.RaftAddr = c.value }},
			{"--gossip-addr", c.bind, func(cfg *Config) { cfg.GossipAddr = c.value }},
			{"--http-addr", c.bind, func(cfg *Config) { cfg.HTTPAddr = c.value }},
			{"--advertise", c.advertise, func(cfg *Config) { cfg.Advertise = c.value }},
			{"--join", c.join, func(cfg *Config) { cfg.Join = []string{c.value} }},
		} {
			cfg := DefaultConfig()
			cfg.Insecure = true
			flag.set(&cfg)
			err := cfg.Validate()
			switch {
			case flag.want == works && err != nil:
				t.Errorf("%s %q: %v", flag.name, c.value, err)
			case flag.want == works:
			case err == nil:
				t.Errorf("%s %q is taken, want a refusal with %q", flag.name, c.value, flag.want)
			default:
				line, _, _ := strings.Cut(err.Error(), "\n")
				for _, part := range []string{flag.name, flag.want, "example"} {
					if !strings.Contains(line, part) && !(part == "example" && strings.Contains(flag.want, "65535")) {
						t.Errorf("%s %q: %q does not say %q", flag.name, c.value, line, part)
					}
				}
				if c.value != "" && !strings.Contains(line, c.value) {
					t.Errorf("%s %q: %q does not name the value", flag.name, c.value, line)
				}
			}
		}
	}
}

// O-34: two servers on IPv6 alone: gossip finds them, Raft makes them one
// group, gRPC, HTTP and metrics answer.
func TestServersOnIPv6(t *testing.T) {
	t.Parallel()
	probe, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		if os.Getenv("LEASEHOLD_CI") == "1" {
			t.Fatalf("this machine has no ::1: %v", err)
		}
		t.Skipf("this machine has no ::1: %v", err)
	}
	probe.Close()
	c := freshCluster(t, 2)
	six := func(addr string) string { return strings.Replace(addr, "127.0.0.1:", "[::1]:", 1) }
	for i := range c.gossip {
		c.gossip[i] = six(c.gossip[i])
	}
	for i := range c.configs {
		cfg := &c.configs[i]
		cfg.GRPCAddr, cfg.RaftAddr, cfg.GossipAddr, cfg.HTTPAddr = six(cfg.GRPCAddr), six(cfg.RaftAddr), c.gossip[i], "[::1]:0"
		cfg.Join = c.gossip
	}
	c.configs[1].Advertise = "[::1]"
	c.startAll()
	c.put("a")
	c.has(0, "a")
	c.has(1, "a")
	for i, p := range c.peers(0) {
		if !strings.HasPrefix(p.GetRaftAddr(), "[::1]:") || !strings.HasPrefix(p.GetGrpcAddr(), "[::1]:") || !strings.HasPrefix(p.GetGossipAddr(), "[::1]:") {
			t.Errorf("server %d is at %v", i, p)
		}
	}
	if !strings.Contains(c.metrics(0), "leasehold_raft_voters 2") {
		t.Error("metrics do not show two voters")
	}
	if code, m := c.postJSON(1, leaseholdv1.ClusterService_GetStatus_FullMethodName, map[string]any{}); code != 200 || m["ready"] != true {
		t.Errorf("HTTP: %d %v", code, m)
	}
}

// O-34: an address that nobody could use is never told to anybody.
func TestWildcardIsNeverAdvertised(t *testing.T) {
	t.Parallel()
	c := freshCluster(t, 1)
	cfg := &c.configs[0]
	any4 := func(addr string) string { return strings.Replace(addr, "127.0.0.1:", "0.0.0.0:", 1) }
	grpcAddr := cfg.GRPCAddr
	cfg.GRPCAddr, cfg.RaftAddr, cfg.GossipAddr, cfg.HTTPAddr = any4(cfg.GRPCAddr), any4(cfg.RaftAddr), any4(cfg.GossipAddr), "0.0.0.0:0"
	cfg.Advertise, cfg.Insecure = "127.0.0.1", true
	c.startAll()
	m, ok := c.running[0].gossip.Member(gossip.Name(gossip.RoleServer, "s1"))
	conn, err := grpc.NewClient("passthrough:///"+grpcAddr, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	peers, err := leaseholdv1.NewClusterServiceClient(conn).ListPeers(t.Context(), &leaseholdv1.ListPeersRequest{})
	if err != nil || len(peers.GetItems()) != 1 || !ok {
		t.Fatalf("%v, %v, %v", peers, err, ok)
	}
	p, addrs := peers.GetItems()[0], c.running[0].Addrs()
	for _, addr := range []string{
		p.GetRaftAddr(), p.GetGrpcAddr(), p.GetHttpAddr(), p.GetGossipAddr(), m.Addr, m.Meta.RaftAddr, m.Meta.GRPCAddr, m.Meta.HTTPAddr,
		addrs.GRPC, addrs.HTTP, addrs.Raft, addrs.Gossip,
	} {
		if !strings.HasPrefix(addr, "127.0.0.1:") {
			t.Errorf("%q is told to others", addr)
		}
	}
}
