package main

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/server"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// gcPercent lets the heap of a server grow to five times what lives in it
// before it is collected: the state is small, a million partitions are 32 MB,
// and what comes and goes with each entry is not. GOGC overrides it.
const gcPercent = 400

// listenFlags are shared by server and dev.
func listenFlags(f *pflag.FlagSet, cfg *server.Config) {
	f.StringVar(&cfg.GRPCAddr, "grpc-addr", cfg.GRPCAddr, "`host:port` for clients and workers; port 0 takes a free one (env LEASEHOLD_GRPC_ADDR)")
	f.StringVar(&cfg.RaftAddr, "raft-addr", cfg.RaftAddr, "`host:port` for the Raft group (env LEASEHOLD_RAFT_ADDR)")
	f.StringVar(&cfg.GossipAddr, "gossip-addr", cfg.GossipAddr, "`host:port` for gossip, TCP and UDP (env LEASEHOLD_GOSSIP_ADDR)")
	f.StringVar(&cfg.AdminAddr, "admin-addr", cfg.AdminAddr, "loopback `host:port` for Go profiles under /debug/pprof/ (default none) (env LEASEHOLD_ADMIN_ADDR)")
	f.StringVar(&cfg.HTTPAddr, "http-addr", cfg.HTTPAddr, "`host:port` for the console, metrics, health and the API as JSON (env LEASEHOLD_HTTP_ADDR)")
	f.StringVar(&cfg.Console, "console", "", "what browsers may do at the HTTP port: operate, read or off (default operate on loopback, else read) (env LEASEHOLD_CONSOLE)")
	layered(f, "grpc-addr", "raft-addr", "gossip-addr", "http-addr", "admin-addr", "console")
}

// keyFlags are the bounds of the coordination API's keys, shared by server and
// dev.
type keyFlags struct{ compactAge durationFlag }

func (k *keyFlags) define(f *pflag.FlagSet, cfg *server.Config) {
	k.compactAge = durationFlag{d: cfg.CompactAge}
	f.Int64Var(&cfg.QuotaBytes, "quota-bytes", cfg.QuotaBytes, "`bytes` of keys and their history from which on puts are refused; 0 for no bound (env LEASEHOLD_QUOTA_BYTES)")
	f.Var(&k.compactAge, "compact-age", "how long superseded versions of keys are kept; 0s for ever (env LEASEHOLD_COMPACT_AGE)")
	f.Int64Var(&cfg.CompactRevisions, "compact-revisions", cfg.CompactRevisions, "how many `revisions` of keys are kept; 0 for no bound (env LEASEHOLD_COMPACT_REVISIONS)")
	layered(f, "quota-bytes", "compact-age", "compact-revisions")
}

// set puts what is no plain field into cfg.
func (k *keyFlags) set(cfg *server.Config) { cfg.CompactAge = k.compactAge.d }

// serverFlags are the settings of a server that are not plain fields.
type serverFlags struct {
	set             *pflag.FlagSet
	names           []string // of the flags below, in set
	cfg             server.Config
	logs            logFlags
	gossipKeyFile   string
	electionTimeout durationFlag
	initialDelay    durationFlag
	shutdownTimeout durationFlag
	keys            keyFlags
}

func (s *serverFlags) define(cmd *cobra.Command) {
	s.flags(cmd.Flags())
	s.logs.complete(cmd)
}

func (s *serverFlags) flags(f *pflag.FlagSet) {
	s.set = f
	s.cfg = server.DefaultConfig()
	s.electionTimeout = durationFlag{d: s.cfg.ElectionTimeout}
	s.initialDelay = durationFlag{d: s.cfg.InitialDelay}
	s.shutdownTimeout = durationFlag{d: s.cfg.ShutdownTimeout, max: time.Hour}
	c := &s.cfg
	f.StringVar(&c.ID, "id", "", "name of this server in the Raft group, for ever (default the stored one, else the host name) (env LEASEHOLD_ID)")
	f.StringVar(&c.DataDir, "data-dir", "", "`directory` of log, snapshots and identity (env LEASEHOLD_DATA_DIR)")
	listenFlags(f, c)
	f.StringVar(&c.Advertise, "advertise", "", "`host` that others reach this server at (default the hosts of the listeners) (env LEASEHOLD_ADVERTISE)")
	f.StringSliceVar(&c.Join, "join", nil, "gossip `addresses` of other servers, separated by commas (env LEASEHOLD_JOIN)")
	f.IntVar(&c.BootstrapExpect, "bootstrap-expect", 0, "how many servers form the cluster, once; 0 waits for cluster init or raft add (env LEASEHOLD_BOOTSTRAP_EXPECT)")
	f.StringVar(&c.GossipLabel, "gossip-label", c.GossipLabel, "keeps the gossip of different clusters apart (env LEASEHOLD_GOSSIP_LABEL)")
	f.StringVar(&s.gossipKeyFile, "gossip-key-file", "", "`file` with 16, 24 or 32 bytes in base64 that encrypt gossip (env LEASEHOLD_GOSSIP_KEY_FILE)")
	f.StringVar(&c.AuditLog, "audit-log", "", "`file` of who has called what, or off (default audit.log in the data directory with TLS, else off) (env LEASEHOLD_AUDIT_LOG)")
	f.Int64Var(&c.AuditLogBytes, "audit-log-bytes", c.AuditLogBytes, "`size` at which a new file of it begins (env LEASEHOLD_AUDIT_LOG_BYTES)")
	f.IntVar(&c.AuditLogFiles, "audit-log-files", c.AuditLogFiles, "how many `files` of it are kept (env LEASEHOLD_AUDIT_LOG_FILES)")
	f.StringVar(&c.TLS.Cert, "tls-cert-file", "", "PEM `file` with this server's certificate: speak TLS and ask who calls (env LEASEHOLD_TLS_CERT_FILE)")
	f.StringVar(&c.TLS.Key, "tls-key-file", "", "PEM `file` with its key (env LEASEHOLD_TLS_KEY_FILE)")
	f.StringVar(&c.TLS.CA, "tls-ca-file", "", "PEM `file` with the authorities whose certificates are believed (env LEASEHOLD_TLS_CA_FILE)")
	f.StringVar(&c.TLS.CRL, "tls-crl-file", "", "PEM `file` with their lists of revoked certificates (env LEASEHOLD_TLS_CRL_FILE)")
	f.BoolVar(&c.Insecure, "insecure", false, "listen off loopback without TLS and gossip key (env LEASEHOLD_INSECURE)")
	f.Var(&s.electionTimeout, "election-timeout", "of the Raft group; the least TTL is six of it (env LEASEHOLD_ELECTION_TIMEOUT)")
	f.Var(&s.initialDelay, "initial-delay", "for keyspaces created without one: wait for more workers before the first grants (env LEASEHOLD_INITIAL_DELAY)")
	f.Var(&s.shutdownTimeout, "shutdown-timeout", "bound of a clean stop (env LEASEHOLD_SHUTDOWN_TIMEOUT)")
	f.Uint64Var(&c.TokenFloor, "token-floor", 0, "last resort: raise the token counter to at least this (env LEASEHOLD_TOKEN_FLOOR)")
	f.IntVar(&c.Limits.Connections, "max-connections", c.Limits.Connections, "at a time on each of the gRPC, HTTP and Raft ports; 0 for no bound (env LEASEHOLD_MAX_CONNECTIONS)")
	f.IntVar(&c.Limits.PerAddress, "max-connections-per-address", c.Limits.PerAddress, "of them, from one address; 0 for no bound, as for loopback without TLS (env LEASEHOLD_MAX_CONNECTIONS_PER_ADDRESS)")
	f.IntVar(&c.Limits.Handshakes, "max-handshakes", c.Limits.Handshakes, "TLS handshakes under way at a time on each port (env LEASEHOLD_MAX_HANDSHAKES)")
	f.IntVar(&c.MaxStreams, "max-streams", c.MaxStreams, "calls open at a time on one gRPC connection; 0 for no bound (env LEASEHOLD_MAX_STREAMS)")
	f.IntVar(&c.MaxRequestBytes, "max-request-bytes", c.MaxRequestBytes, "`bytes` of one request (env LEASEHOLD_MAX_REQUEST_BYTES)")
	layered(f, "tls-cert-file", "tls-key-file", "tls-ca-file", "tls-crl-file",
		"max-connections", "max-connections-per-address", "max-handshakes", "max-streams", "max-request-bytes")
	layered(f, "id", "data-dir", "advertise", "join", "bootstrap-expect", "gossip-label", "gossip-key-file", "audit-log", "audit-log-bytes", "audit-log-files", "insecure",
		"election-timeout", "initial-delay", "shutdown-timeout", "token-floor")
	s.keys.define(f, c)
	s.logs.flags(f, slog.LevelInfo)
	f.VisitAll(func(f *pflag.Flag) { s.names = append(s.names, f.Name) })
}

// each visits the server's own flags, without the global ones of a command.
func (s *serverFlags) each(visit func(*pflag.Flag)) {
	for _, name := range s.names {
		visit(s.set.Lookup(name))
	}
}

// config puts the settings together and checks them. Its error has all that is
// wrong with them.
func (s *serverFlags) config(e env) (server.Config, error) {
	c := s.cfg
	c.ElectionTimeout, c.InitialDelay, c.ShutdownTimeout = s.electionTimeout.d, s.initialDelay.d, s.shutdownTimeout.d
	s.keys.set(&c)
	c.Version = version()
	kept := &logRing{}
	c.Logger, c.RecentLog = kept.keepIn(s.logs.logger(e)), kept.text
	c.Secrets = e.secrets()
	c.LibraryMetrics = true // the only server of this process
	var errs []error
	if c.DataDir == "" {
		errs = append(errs, errNoDataDir)
	}
	if s.gossipKeyFile != "" {
		key, err := readKey(s.gossipKeyFile)
		if err != nil {
			errs = append(errs, s.fault("gossip-key-file", "", err.Error()))
		}
		c.GossipKey = key
	}
	for _, name := range []string{"tls-cert-file", "tls-key-file", "tls-ca-file", "tls-crl-file"} {
		if strings.Contains(s.set.Lookup(name).Value.String(), "-----BEGIN ") {
			errs = append(errs, s.fault(name, "", "this is what should be in the file: want its path; make a new key if that was one"))
		}
	}
	for _, err := range eachError(c.Validate()) {
		var bad *server.SettingError
		if errors.As(err, &bad) {
			err = s.fault(strings.TrimPrefix(bad.Flag, "--"), bad.Value, bad.Limit)
		}
		errs = append(errs, err)
	}
	return c, usageErrors(errs...)
}

// fault names where the value that is wrong was set.
func (s *serverFlags) fault(flag, value, problem string) error {
	f := &settingFault{key: fileKey(flag), from: "--" + flag, value: value, problem: problem}
	if set := s.set.Lookup(flag); set != nil && origin(set) != "default" {
		f.from = origin(set)
	}
	return f
}

var errNoDataDir = errors.New("--data-dir is missing: where should log and snapshots live? for example --data-dir /var/lib/leasehold; a server without any is: leasehold dev")

// causes leaves out what only follows: a file that cannot be read may well have
// what is missing.
func causes(faults []error) []error {
	var file *unreadableError
	if !slices.ContainsFunc(faults, func(err error) bool { return errors.As(err, &file) }) {
		return faults
	}
	return slices.DeleteFunc(faults, func(err error) bool { return errors.Is(err, errNoDataDir) })
}

// usageErrors makes one error of all, nil of none.
func usageErrors(errs ...error) error {
	var all []error
	for _, err := range errs {
		all = append(all, eachError(err)...)
	}
	all = causes(all)
	if len(all) == 0 {
		return nil
	}
	return &usageError{errors.Join(all...)}
}

// eachError takes apart what errors.Join has put together.
func eachError(err error) []error {
	var all []error
	switch e := err.(type) { //nolint:errorlint // the tree itself is walked
	case nil:
	case *usageError:
		return eachError(e.err)
	case interface{ Unwrap() []error }:
		for _, part := range e.Unwrap() {
			all = append(all, eachError(part)...)
		}
	default:
		all = append(all, err)
	}
	return all
}

// readKey never puts the key, or a part of it, into an error.
func readKey(file string) ([]byte, error) {
	if isKey(file) {
		return nil, errors.New("this looks like a key itself: want the path of a file that holds it; whoever has seen it here can read gossip, make another")
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read gossip key: %w", err)
	}
	key, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(raw)))
	if err != nil {
		return nil, fmt.Errorf("read gossip key: %s is not base64; make a key with: leasehold gossip keyring generate", file)
	}
	return key, nil
}

// shown is the value of a flag for logs and people.
func shown(f *pflag.Flag) string {
	if f.Name == "gossip-key-file" && isKey(f.Value.String()) {
		return "(a key instead of a path)"
	}
	return withoutSecrets(f.Value.String())
}

func newServerCommand(e env) *cobra.Command {
	var s serverFlags
	var faults error
	cmd := &cobra.Command{
		Use:   "server",
		Short: "Run a server of the cluster",
		Long: `Run a server. Three of them started with --bootstrap-expect 3 and each other's
gossip addresses in --join form a cluster, once; from then on what is in their
data directories counts, and any of them may be restarted as it is.

With --tls-cert-file, --tls-key-file and --tls-ca-file it speaks TLS and asks who
calls; leasehold tls makes the files, and new ones are used within a second. Off
loopback it wants them, and a key for gossip, unless it is told --insecure.

SIGTERM and SIGINT end it in order; a second one ends it at once. SIGHUP reads
the settings and the TLS files anew: log-level and join take effect, the log names
every other that has changed and needs a restart, and a file with a fault changes
nothing.
Under systemd it tells its state to the service manager.`,
		Example: `  leasehold server --id s1 --data-dir /var/lib/leasehold --bootstrap-expect 1
  leasehold server --id s1 --data-dir /var/lib/leasehold --bootstrap-expect 3 \
    --grpc-addr 10.0.0.1:7400 --raft-addr 10.0.0.1:7401 --gossip-addr 10.0.0.1:7402 \
    --http-addr 10.0.0.1:7480 --join 10.0.0.2:7402,10.0.0.3:7402 --insecure
  leasehold server --config /etc/leasehold.yaml`,
		Args: exactArgs(),
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			faults = applyLayers(e, cmd) // told with those of config
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := s.config(e)
			if err := usageErrors(faults, err); err != nil {
				return err
			}
			if err := e.serverFaults(&cfg); err != nil {
				return err
			}
			return s.run(cmd.Context(), e, cfg, knownKeys(cmd.Root()))
		},
	}
	s.define(cmd)
	return cmd
}

// run runs the server until it is told to stop, and tells the service manager.
func (s *serverFlags) run(ctx context.Context, e env, cfg server.Config, known map[string]bool) error {
	hangups := make(chan os.Signal, 1) // one is enough: reading covers all before
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)
	s.logSettings(cfg.Logger)
	if err := checkPrivate(s.gossipKeyFile); err != nil {
		cfg.Logger.Warn("gossip key is no secret on this machine", "error", err)
	}
	if e.getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	var srv *server.Server
	var err error
	manager := newService(e, cfg)
	manager.opening(func() { srv, err = server.New(cfg) })
	if err != nil {
		manager.failed(err)
		return err
	}
	r := &reloader{e: e, known: known, running: s, key: cfg.GossipKey, setJoin: srv.SetJoin, readTLS: srv.ReloadCertificates, done: srv.SettingsRead, log: cfg.Logger}
	manager.start(ctx, srv, hangups, r.reload)
	err = srv.Run(ctx)
	manager.stop()
	var stopped *signalError
	if errors.As(err, &stopped) {
		return nil // it was asked to
	}
	if err != nil {
		manager.failed(err)
	}
	return err
}

// logSettings says what is in effect and where it came from.
func (s *serverFlags) logSettings(log *slog.Logger) {
	var attrs []any
	s.each(func(f *pflag.Flag) {
		attrs = append(attrs, slog.Group(fileKey(f.Name), "value", shown(f), "from", origin(f)))
	})
	log.Info("settings", attrs...)
}
