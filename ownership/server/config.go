package server

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/api"
	"github.com/leasehold-dev/leasehold/ownership/auditlog"
	"github.com/leasehold-dev/leasehold/ownership/bootclock"
	"github.com/leasehold-dev/leasehold/ownership/listen"
	"github.com/leasehold-dev/leasehold/ownership/pki"
	"github.com/leasehold-dev/leasehold/raftstore"
	"github.com/leasehold-dev/leasehold/raftstore/etcdapi"
)

// Config of one server. DefaultConfig fills in what has a default.
type Config struct {
	// ID names the server in the Raft group for ever. Empty: the id stored in
	// DataDir, else the host name. An ID that differs from the stored one is
	// refused.
	ID string
	// DataDir holds log, snapshots and identity; created with mode 0700.
	// Empty: all state is in memory and is lost with the process.
	DataDir string
	// The four listeners, host:port. Port 0 takes a free one; see Addrs.
	GRPCAddr, RaftAddr, GossipAddr, HTTPAddr string
	// AdminAddr serves Go's profiles (/debug/pprof/). Empty: nowhere. They show
	// memory of the process to whoever can connect, so it must be loopback.
	AdminAddr string
	// Console says what browsers may do on the HTTP port: ConsoleOperate, ConsoleRead
	// or ConsoleOff. Empty: operate on loopback, else read.
	Console string
	// Advertise is the host or IP that others reach this server at. Empty: the
	// host of each listener, which then must not be a wildcard.
	Advertise string
	// Join are gossip addresses of other servers, host:port. Unreachable ones
	// are tried again for ever; the own address among them is skipped.
	Join []string
	// BootstrapExpect is how many servers form the cluster together, once. 0:
	// wait to be added to an existing one. It has no effect when DataDir holds
	// state.
	BootstrapExpect int
	// GossipLabel keeps the gossip of different clusters apart.
	GossipLabel string
	// GossipKey encrypts gossip; 16, 24 or 32 bytes. Empty: no encryption, unless
	// DataDir has keys. It is for the beginning: the keys that the cluster has
	// changed to are kept in DataDir and win over it.
	GossipKey []byte
	// AuditLog is the file of who has called what; those before it get a suffix.
	// Empty: audit.log in DataDir with TLS, else none. AuditLogOff: there is none.
	AuditLog string
	// AuditLogBytes is how large a file of it gets, AuditLogFiles how many are kept.
	AuditLogBytes int64
	AuditLogFiles int
	// TLS has the server's certificate, its key, the authorities that sign the
	// certificates of others, and perhaps their lists of revocations. With it all
	// listeners but gossip's speak TLS, and who calls must say who they are; without,
	// everybody may do everything. GossipLabel is the cluster's name in certificates.
	TLS pki.Files
	// Limits bound what each TCP listener lets in; see DefaultConfig. What is 0 has
	// no bound, or the default of package listen.
	Limits listen.Limits
	// MaxStreams bounds the calls that are open on one gRPC connection.
	MaxStreams int
	// MaxRequestBytes bounds one request of either API.
	MaxRequestBytes int
	// Insecure allows listeners off loopback without TLS and gossip key.
	Insecure bool
	// ElectionTimeout of the Raft group, also its heartbeat timeout. The least
	// TTL of a keyspace is six of it.
	ElectionTimeout time.Duration
	// InitialDelay is given to keyspaces that are created without one.
	InitialDelay time.Duration
	// ShutdownTimeout bounds a clean stop; after it, everything is cut.
	ShutdownTimeout time.Duration
	// QuotaBytes is how large the keys of the coordination API and their history
	// may grow before puts are refused; 0: no bound.
	QuotaBytes int64
	// CompactAge is how long superseded versions of keys are kept, and
	// CompactRevisions how many revisions; 0: no bound.
	CompactAge       time.Duration
	CompactRevisions int64
	// TokenFloor is the last resort against a token counter that is known to
	// be too low: the leader raises it to at least this. 0: none.
	TokenFloor uint64
	// LibraryMetrics sends what the Raft and gossip libraries measure to this
	// server's series. Their sink is one per process: set it on one server.
	LibraryMetrics bool
	// Clock measures the time that passes for sessions, leases and plans; nil:
	// the boot clock. It is for tests with a clock that is too fast or too slow.
	// Promises hold while the rates of all servers' and workers' clocks differ by
	// less than 1 %.
	Clock bootclock.Clock
	// WrapLog is raftstore.Config.WrapLog: tests that make the disk slow or hang
	// stand between the server and its log. nil: nobody does.
	WrapLog func(raftstore.LogStore) raftstore.LogStore
	// Version is reported in status and metrics.
	Version string
	// RecentLog returns the last log lines, for debug archives. nil: an archive
	// has none.
	RecentLog func() []byte
	// Secrets, besides GossipKey, are kept out of debug archives wherever they
	// might turn up: values of the environment, say.
	Secrets []string
	// Logger gets structured lines with stable keys. nil: slog.Default().
	Logger *slog.Logger

	hooks hooks
}

// Below these a unit was most likely forgotten.
const (
	leastQuota            = 1 << 20
	leastCompactAge       = time.Second
	leastCompactRevisions = 100
)

// MinElectionTimeout keeps elections above what a scheduler may lose.
const MinElectionTimeout = 100 * time.Millisecond

// DefaultConfig listens on loopback with the standard ports.
func DefaultConfig() Config {
	return Config{
		GRPCAddr:         "127.0.0.1:7400",
		RaftAddr:         "127.0.0.1:7401",
		GossipAddr:       "127.0.0.1:7402",
		HTTPAddr:         "127.0.0.1:7480",
		GossipLabel:      "leasehold",
		ElectionTimeout:  500 * time.Millisecond,
		InitialDelay:     time.Second,
		ShutdownTimeout:  10 * time.Second,
		QuotaBytes:       etcdapi.DefaultQuotaBytes,
		CompactAge:       etcdapi.DefaultCompactAge,
		CompactRevisions: etcdapi.DefaultCompactRevisions,
		AuditLogBytes:    auditlog.DefaultSegmentBytes,
		AuditLogFiles:    auditlog.DefaultSegments,
		Limits: listen.Limits{
			Connections: listen.DefaultConnections, PerAddress: listen.DefaultPerAddress,
			Handshakes: listen.DefaultHandshakes, HandshakeTimeout: listen.DefaultHandshakeTimeout,
		},
		MaxStreams:      DefaultMaxStreams,
		MaxRequestBytes: api.DefaultMaxRequestBytes,
		Version:         "devel",
	}
}

// DevConfig is a server alone, in memory, for trying things out.
func DevConfig() Config {
	c := DefaultConfig()
	c.ID = "dev"
	c.BootstrapExpect = 1
	c.ElectionTimeout = 200 * time.Millisecond
	c.InitialDelay = 0
	return c
}

// SettingError is one value that is wrong or contradicts another. Validate
// joins all that it finds.
type SettingError struct {
	// Flag is the flag that sets it, with its dashes. Value may be empty, and is
	// never a secret. Limit says what would do.
	Flag, Value, Limit string
}

func (e *SettingError) Error() string {
	if e.Value == "" {
		return e.Flag + ": " + e.Limit
	}
	return fmt.Sprintf("%s %q: %s", e.Flag, e.Value, e.Limit)
}

// Validate reports every value that is wrong or contradicts another, naming
// the flag, the value and what would do.
func (c *Config) Validate() error {
	var errs []error
	refuse := func(flag, value, limit string) {
		errs = append(errs, &SettingError{Flag: flag, Value: value, Limit: limit})
	}
	for _, a := range c.listeners() {
		host, err := splitAddr(a.value)
		if err != nil {
			refuse(a.field, a.value, err.Error())
			continue
		}
		if isWildcard(host) && c.Advertise == "" {
			refuse(a.field, a.value, "a wildcard cannot be told to others: add --advertise with the address they reach this server at, for example --advertise 10.0.0.1")
		}
		if !isLoopback(host) {
			if missing := c.missing(); missing != "" {
				refuse(a.field, a.value, missing)
			}
		}
	}
	for _, twice := range sameAddrs(append(c.listeners(), listenAddr{"--admin-addr", c.AdminAddr})) {
		refuse(twice.field, twice.value, "another listener has the same port: every one needs its own")
	}
	c.checkSecurity(refuse)
	if c.AdminAddr != "" {
		if host, err := splitAddr(c.AdminAddr); err != nil {
			refuse("--admin-addr", c.AdminAddr, err.Error())
		} else if !isLoopback(host) {
			refuse("--admin-addr", c.AdminAddr, "profiles show the process's memory: only a loopback address, for example 127.0.0.1:7490")
		}
	}
	if limit := c.checkConsole(); limit != "" {
		refuse("--console", c.Console, limit)
	}
	if err := checkAdvertise(c.Advertise); err != nil {
		refuse("--advertise", c.Advertise, err.Error())
	}
	for _, j := range c.Join {
		if err := checkJoin(j); err != nil {
			refuse("--join", j, err.Error())
		}
	}
	switch {
	case c.BootstrapExpect < 0 || c.BootstrapExpect > 9:
		refuse("--bootstrap-expect", strconv.Itoa(c.BootstrapExpect), "want 0 (join an existing cluster) to 9 servers")
	case c.BootstrapExpect > 1 && len(c.Join) == 0:
		refuse("--bootstrap-expect", strconv.Itoa(c.BootstrapExpect), "more than one server needs --join with the gossip address of at least one other")
	}
	if c.ElectionTimeout < MinElectionTimeout || c.ElectionTimeout > time.Minute {
		refuse("--election-timeout", c.ElectionTimeout.String(), "want 100ms to 1m")
	}
	if c.InitialDelay < 0 || c.InitialDelay > 5*time.Second {
		refuse("--initial-delay", c.InitialDelay.String(), "want 0s to 5s")
	}
	if c.ShutdownTimeout <= 0 {
		refuse("--shutdown-timeout", c.ShutdownTimeout.String(), "want more than 0s, for example 10s")
	}
	if c.QuotaBytes != 0 && c.QuotaBytes < leastQuota {
		refuse("--quota-bytes", strconv.FormatInt(c.QuotaBytes, 10), fmt.Sprintf("want 0 (no bound) or at least %d", leastQuota))
	}
	if c.CompactAge != 0 && c.CompactAge < leastCompactAge {
		refuse("--compact-age", c.CompactAge.String(), "want 0s (never) or at least "+leastCompactAge.String())
	}
	if c.CompactRevisions != 0 && c.CompactRevisions < leastCompactRevisions {
		refuse("--compact-revisions", strconv.FormatInt(c.CompactRevisions, 10), fmt.Sprintf("want 0 (no bound) or at least %d", leastCompactRevisions))
	}
	if c.AuditLogBytes < auditlog.MinSegmentBytes {
		refuse("--audit-log-bytes", strconv.FormatInt(c.AuditLogBytes, 10), fmt.Sprintf("want at least %d", auditlog.MinSegmentBytes))
	}
	if c.AuditLogFiles < auditlog.MinSegments {
		refuse("--audit-log-files", strconv.Itoa(c.AuditLogFiles), fmt.Sprintf("want at least %d", auditlog.MinSegments))
	}
	if n := len(c.GossipKey); !slices.Contains([]int{0, 16, 24, 32}, n) {
		refuse("--gossip-key-file", "", fmt.Sprintf("a key of %d bytes: want 16, 24 or 32", n)) // never the key itself
	}
	if c.GossipLabel == "" || len(c.GossipLabel) > 128 {
		refuse("--gossip-label", c.GossipLabel, "want 1 to 128 bytes")
	}
	return errors.Join(errs...)
}

type listenAddr struct{ field, value string }

func (c *Config) listeners() []listenAddr {
	return []listenAddr{{"--grpc-addr", c.GRPCAddr}, {"--raft-addr", c.RaftAddr}, {"--gossip-addr", c.GossipAddr}, {"--http-addr", c.HTTPAddr}}
}

func (c *Config) logger() *slog.Logger {
	if c.Logger == nil {
		return slog.Default()
	}
	return c.Logger
}

func (c *Config) id(stored string) (string, error) {
	switch {
	case c.ID != "":
		return c.ID, nil
	case stored != "":
		return stored, nil
	}
	host, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("choose a server id: %w (set --id)", err)
	}
	return host, nil
}
