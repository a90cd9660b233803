package main

import (
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"strings"
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
	f.StringVar(&cfg.HTTPAddr, "http-addr", cfg.HTTPAddr, "`host:port` for metrics, health and the API as JSON (env LEASEHOLD_HTTP_ADDR)")
	layered(f, "grpc-addr", "raft-addr", "gossip-addr", "http-addr", "admin-addr")
}

// serverFlags are the settings of a server that are not plain fields.
type serverFlags struct {
	cfg             server.Config
	logs            logFlags
	gossipKeyFile   string
	electionTimeout durationFlag
	initialDelay    durationFlag
	shutdownTimeout durationFlag
}

func (s *serverFlags) define(cmd *cobra.Command) {
	s.cfg = server.DefaultConfig()
	s.electionTimeout = durationFlag{d: s.cfg.ElectionTimeout}
	s.initialDelay = durationFlag{d: s.cfg.InitialDelay}
	s.shutdownTimeout = durationFlag{d: s.cfg.ShutdownTimeout, max: time.Hour}
	f, c := cmd.Flags(), &s.cfg
	f.StringVar(&c.ID, "id", "", "name of this server in the Raft group, for ever (default the stored one, else the host name) (env LEASEHOLD_ID)")
	f.StringVar(&c.DataDir, "data-dir", "", "`directory` of log, snapshots and identity (env LEASEHOLD_DATA_DIR)")
	listenFlags(f, c)
	f.StringVar(&c.Advertise, "advertise", "", "`host` that others reach this server at (default the hosts of the listeners) (env LEASEHOLD_ADVERTISE)")
	f.StringSliceVar(&c.Join, "join", nil, "gossip `addresses` of other servers, separated by commas (env LEASEHOLD_JOIN)")
	f.IntVar(&c.BootstrapExpect, "bootstrap-expect", 0, "how many servers form the cluster, once; 0 joins an existing one (env LEASEHOLD_BOOTSTRAP_EXPECT)")
	f.StringVar(&c.GossipLabel, "gossip-label", c.GossipLabel, "keeps the gossip of different clusters apart (env LEASEHOLD_GOSSIP_LABEL)")
	f.StringVar(&s.gossipKeyFile, "gossip-key-file", "", "`file` with 16, 24 or 32 bytes in base64 that encrypt gossip (env LEASEHOLD_GOSSIP_KEY_FILE)")
	f.BoolVar(&c.Insecure, "insecure", false, "listen off loopback without TLS and gossip key (env LEASEHOLD_INSECURE)")
	f.Var(&s.electionTimeout, "election-timeout", "of the Raft group; the least TTL is six of it (env LEASEHOLD_ELECTION_TIMEOUT)")
	f.Var(&s.initialDelay, "initial-delay", "for keyspaces created without one: wait for more workers before the first grants (env LEASEHOLD_INITIAL_DELAY)")
	f.Var(&s.shutdownTimeout, "shutdown-timeout", "bound of a clean stop (env LEASEHOLD_SHUTDOWN_TIMEOUT)")
	f.Uint64Var(&c.TokenFloor, "token-floor", 0, "last resort: raise the token counter to at least this (env LEASEHOLD_TOKEN_FLOOR)")
	layered(f, "id", "data-dir", "advertise", "join", "bootstrap-expect", "gossip-label", "gossip-key-file", "insecure",
		"election-timeout", "initial-delay", "shutdown-timeout", "token-floor")
	s.logs.define(cmd, slog.LevelInfo)
}

// config puts the settings together and checks them.
func (s *serverFlags) config(e env) (server.Config, error) {
	c := s.cfg
	c.ElectionTimeout, c.InitialDelay, c.ShutdownTimeout = s.electionTimeout.d, s.initialDelay.d, s.shutdownTimeout.d
	c.Version = version()
	c.Logger = s.logs.logger(e)
	c.LibraryMetrics = true // the only server of this process
	if c.DataDir == "" {
		return c, usage("--data-dir is missing: where should log and snapshots live? for example --data-dir /var/lib/leasehold; a server without any is: leasehold dev")
	}
	if s.gossipKeyFile != "" {
		key, err := readKey(s.gossipKeyFile)
		if err != nil {
			return c, &usageError{err}
		}
		c.GossipKey = key
	}
	if err := c.Validate(); err != nil {
		return c, &usageError{err}
	}
	return c, nil
}

// readKey never puts the key, or a part of it, into an error.
func readKey(file string) ([]byte, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read gossip key: %w", err)
	}
	key, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(raw)))
	if err != nil {
		return nil, fmt.Errorf("read gossip key: %s is not base64; make a key with: head -c 32 /dev/urandom | base64", file)
	}
	return key, nil
}

func newServerCommand(e env) *cobra.Command {
	var s serverFlags
	cmd := &cobra.Command{
		Use:   "server",
		Short: "Run a server of the cluster",
		Long: `Run a server. Three of them started with --bootstrap-expect 3 and each other's
gossip addresses in --join form a cluster, once; from then on what is in their
data directories counts, and any of them may be restarted as it is.

SIGTERM and SIGINT end it in order; a second one ends it at once.`,
		Example: `  leasehold server --id s1 --data-dir /var/lib/leasehold --bootstrap-expect 1
  leasehold server --id s1 --data-dir /var/lib/leasehold --bootstrap-expect 3 \
    --grpc-addr 10.0.0.1:7400 --raft-addr 10.0.0.1:7401 --gossip-addr 10.0.0.1:7402 \
    --http-addr 10.0.0.1:7480 --join 10.0.0.2:7402,10.0.0.3:7402 --insecure
  leasehold server --config /etc/leasehold.yaml`,
		Args: exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := s.config(e)
			if err != nil {
				return err
			}
			logSettings(cfg.Logger, cmd)
			if e.getenv("GOGC") == "" {
				debug.SetGCPercent(gcPercent)
			}
			srv, err := server.New(cfg)
			if err != nil {
				return err
			}
			err = srv.Run(cmd.Context())
			var stopped *signalError
			if errors.As(err, &stopped) {
				return nil // it was asked to
			}
			return err
		},
	}
	s.define(cmd)
	return cmd
}

// logSettings says what is in effect and where it came from.
func logSettings(log *slog.Logger, cmd *cobra.Command) {
	var attrs []any
	cmd.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
		if isLayered(f) {
			attrs = append(attrs, slog.Group(fileKey(f.Name), "value", f.Value.String(), "from", origin(f)))
		}
	})
	log.Info("settings", attrs...)
}
