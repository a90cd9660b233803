package server

import (
	"strings"
	"testing"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/pki"
)

// someTLS are names of files that nobody reads.
var someTLS = pki.Files{Cert: "tls.pem", Key: "tls-key.pem", CA: "ca.pem"}

// Connections leave open files for the log, whatever is allowed.
func TestConnectionsLeaveOpenFiles(t *testing.T) {
	for _, c := range []struct {
		allowed int
		files   int64
		want    int
		reduced bool
	}{
		{10_000, 1 << 20, 10_000, false}, {10_000, 1024, 170, true}, {100, 1024, 100, false},
		{0, 65536, 21674, false}, {10_000, 256, 42, true}, {10_000, 0, 10_000, false}, {0, 1 << 62, mostConnections, false},
	} {
		cfg := DefaultConfig()
		cfg.Limits.Connections = c.allowed
		if got, reduced := cfg.limits(c.files); got.Connections != c.want || reduced != c.reduced {
			t.Errorf("%d allowed, %d open files: %d (%v), want %d (%v)", c.allowed, c.files, got.Connections, reduced, c.want, c.reduced)
		}
	}
}

func TestConfigNamesWhatIsWrong(t *testing.T) {
	cases := map[string]struct {
		change func(*Config)
		want   []string // parts of the error; none: valid
	}{
		"default":                   {func(*Config) {}, nil},
		"off loopback":              {func(c *Config) { c.GRPCAddr = "10.0.0.1:7400" }, []string{"--grpc-addr", "10.0.0.1:7400", "--insecure"}},
		"off loopback, accepted":    {func(c *Config) { c.GRPCAddr, c.Insecure = "10.0.0.1:7400", true }, nil},
		"off loopback with TLS":     {func(c *Config) { c.GRPCAddr, c.TLS = "10.0.0.1:7400", someTLS }, []string{"--grpc-addr", "gossip key is needed", "--gossip-key-file"}},
		"off loopback with a key":   {func(c *Config) { c.GRPCAddr, c.GossipKey = "10.0.0.1:7400", make([]byte, 32) }, []string{"--grpc-addr", "TLS is needed", "--tls-cert-file", "leasehold tls"}},
		"off loopback with both":    {func(c *Config) { c.GRPCAddr, c.TLS, c.GossipKey = "10.0.0.1:7400", someTLS, make([]byte, 32) }, nil},
		"a key and no certificate":  {func(c *Config) { c.TLS = pki.Files{Key: "key.pem", CA: "ca.pem"} }, []string{"--tls-cert-file"}},
		"a list and nothing else":   {func(c *Config) { c.TLS = pki.Files{CRL: "crl.pem"} }, []string{"--tls-cert-file", "--tls-key-file", "--tls-ca-file"}},
		"label of no certificate":   {func(c *Config) { c.TLS, c.GossipLabel = someTLS, "our cluster" }, []string{"--gossip-label", "our cluster"}},
		"streams below none":        {func(c *Config) { c.MaxStreams = -1 }, []string{"--max-streams", `"-1"`}},
		"tiny requests":             {func(c *Config) { c.MaxRequestBytes = 1 }, []string{"--max-request-bytes", `"1"`, "65536"}},
		"negative connections":      {func(c *Config) { c.Limits.Connections = -1 }, []string{"--max-connections", `"-1"`}},
		"wildcard without a name":   {func(c *Config) { c.RaftAddr, c.Insecure = "0.0.0.0:7401", true }, []string{"--raft-addr", "--advertise"}},
		"wildcard with a name":      {func(c *Config) { c.RaftAddr, c.Insecure, c.Advertise = "[::]:7401", true, "10.0.0.1" }, nil},
		"bare port":                 {func(c *Config) { c.HTTPAddr, c.Insecure = ":7480", true }, []string{"--http-addr", "--advertise"}},
		"IPv6 without brackets":     {func(c *Config) { c.GRPCAddr = "::1" }, []string{"--grpc-addr", "[::1]:7400"}},
		"IPv6":                      {func(c *Config) { c.GRPCAddr = "[::1]:7946" }, nil},
		"host without a port":       {func(c *Config) { c.GossipAddr = "127.0.0.1" }, []string{"--gossip-addr", "host:port"}},
		"port above the range":      {func(c *Config) { c.GRPCAddr = "127.0.0.1:70000" }, []string{"70000", "65535"}},
		"free port":                 {func(c *Config) { c.GRPCAddr = "127.0.0.1:0" }, nil},
		"empty":                     {func(c *Config) { c.GRPCAddr = "" }, []string{"--grpc-addr", "host:port"}},
		"advertised wildcard":       {func(c *Config) { c.Advertise = "0.0.0.0" }, []string{"--advertise", "wildcard"}},
		"advertise with a port":     {func(c *Config) { c.Advertise = "10.0.0.1:7400" }, []string{"--advertise", "without a port"}},
		"join without a port":       {func(c *Config) { c.Join = []string{"10.0.0.1"} }, []string{"--join", "host:port"}},
		"three servers, no address": {func(c *Config) { c.BootstrapExpect = 3 }, []string{"--bootstrap-expect", "--join"}},
		"negative servers":          {func(c *Config) { c.BootstrapExpect = -1 }, []string{"--bootstrap-expect", "-1"}},
		"key of 15 bytes":           {func(c *Config) { c.GossipKey = make([]byte, 15) }, []string{"15 bytes", "16, 24 or 32"}},
		"key of 17 bytes (O-89)":    {func(c *Config) { c.GossipKey = make([]byte, 17) }, []string{"17 bytes", "16, 24 or 32"}},
		"key of 32 bytes":           {func(c *Config) { c.GossipKey = make([]byte, 32) }, nil},
		"hasty elections":           {func(c *Config) { c.ElectionTimeout = time.Millisecond }, []string{"--election-timeout", "1ms", "100ms"}},
		"profiles on loopback":      {func(c *Config) { c.AdminAddr = "127.0.0.1:0" }, nil},
		"profiles off loopback":     {func(c *Config) { c.AdminAddr, c.Insecure = "10.0.0.1:7490", true }, []string{"--admin-addr", "loopback"}},
		"one port for two":          {func(c *Config) { c.HTTPAddr = "127.0.0.1:7400" }, []string{"--http-addr", "127.0.0.1:7400", "same port"}},
		"one port, any host":        {func(c *Config) { c.HTTPAddr, c.Insecure, c.Advertise = ":7401", true, "10.0.0.1" }, []string{"--http-addr", "same port"}},
		"one port on two hosts":     {func(c *Config) { c.HTTPAddr = "127.0.0.2:7400" }, nil},
		"two free ports":            {func(c *Config) { c.HTTPAddr, c.GRPCAddr = "127.0.0.1:0", "127.0.0.1:0" }, nil},
		"console of no kind":        {func(c *Config) { c.Console = "admin" }, []string{"--console", `"admin"`, "operate, read or off"}},
		"no bounds of keys":         {func(c *Config) { c.QuotaBytes, c.CompactAge, c.CompactRevisions = 0, 0, 0 }, nil},
		"quota without a unit":      {func(c *Config) { c.QuotaBytes = 2 }, []string{"--quota-bytes", `"2"`, "1048576"}},
		"negative quota":            {func(c *Config) { c.QuotaBytes = -1 }, []string{"--quota-bytes", `"-1"`}},
		"hasty compaction":          {func(c *Config) { c.CompactAge = time.Millisecond }, []string{"--compact-age", "1ms", "1s"}},
		"few revisions":             {func(c *Config) { c.CompactRevisions = 99 }, []string{"--compact-revisions", `"99"`, "100"}},
		"no time to stop":           {func(c *Config) { c.ShutdownTimeout = 0 }, []string{"--shutdown-timeout"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			cfg := DefaultConfig()
			c.change(&cfg)
			err := cfg.Validate()
			if len(c.want) == 0 && err != nil {
				t.Fatal(err)
			}
			for _, part := range c.want {
				if err == nil || !strings.Contains(err.Error(), part) {
					t.Errorf("error %v does not name %q", err, part)
				}
			}
		})
	}
}

func TestAdvertisedAddress(t *testing.T) {
	cfg := DefaultConfig()
	if got := cfg.advertised("127.0.0.1:7401"); got != "127.0.0.1:7401" {
		t.Error(got)
	}
	cfg.Advertise = "fd00::1"
	if got := cfg.advertised("[::]:7401"); got != "[fd00::1]:7401" {
		t.Error(got)
	}
}
