package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/leasehold-dev/leasehold/cmd/leasehold/internal/sidecar"
	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"github.com/leasehold-dev/leasehold/ownership/pki"
	"github.com/leasehold-dev/leasehold/ownership/worker"
	"github.com/leasehold-dev/leasehold/raftstore/access"
)

// sidecarFlags are shared by run and hold.
type sidecarFlags struct {
	id, endpoint, zone     string
	capacity               uint32
	gossip                 string
	stopGrace, shutdownFor durationFlag
	prefix                 prefixFlag
	metrics                metricsAddr
	logs                   logFlags
}

func (s *sidecarFlags) define(cmd *cobra.Command, id string) {
	s.shutdownFor = durationFlag{d: worker.DefaultShutdownTimeout, max: time.Hour}
	f := cmd.Flags()
	f.StringVar(&s.id, "id", "", "worker `name`, the same after a restart ("+id+") (env LEASEHOLD_ID)")
	f.StringVar(&s.endpoint, "endpoint", "", "where others reach the command, as routers tell it (env LEASEHOLD_ENDPOINT)")
	f.StringVar(&s.zone, "zone", "", "where it runs, for the choice of a replacement (env LEASEHOLD_ZONE)")
	f.StringVar(&s.gossip, "gossip", "", "auto, off or the `host:port` to bind; lets a fenced keyspace be taken over before the TTL is over (default auto in a fenced keyspace, off in a strict one) (env LEASEHOLD_GOSSIP)")
	f.Var(&s.stopGrace, "stop-grace", "taken off the TTL for stopping the command when the lease is lost: half for SIGTERM, half for SIGKILL (default an eighth of the TTL)")
	f.Lookup("stop-grace").DefValue = ""
	f.Var(&s.shutdownFor, "shutdown-timeout", "bound of an orderly end; make it longer than the keyspace's handoff timeout (env LEASEHOLD_SHUTDOWN_TIMEOUT)")
	f.Var(&s.prefix, "prefix", "put [keyspace/partition] before each line of output: auto (on a terminal), on or off")
	layered(f, "id", "endpoint", "zone", "gossip", "shutdown-timeout")
	complete(cmd, "prefix", fixed("auto", "on", "off"))
	s.metrics.define(cmd)
	s.logs.define(cmd, slog.LevelWarn)
}

// prefixFlag is auto (or empty), on or off.
type prefixFlag string

// String implements pflag.Value.
func (f *prefixFlag) String() string {
	if *f == "" {
		return "auto"
	}
	return string(*f)
}

// Type implements pflag.Value.
func (*prefixFlag) Type() string { return "when" }

// Set implements pflag.Value.
func (f *prefixFlag) Set(s string) error {
	switch s {
	case "auto", "on", "off":
		*f = prefixFlag(s)
		return nil
	}
	return fmt.Errorf("want auto, on or off")
}

// config puts together what is known without the servers.
func (s *sidecarFlags) config(e env, keyspace string, command []string) (sidecar.Config, error) {
	c := sidecar.Config{
		Command:   command,
		StopGrace: s.stopGrace.d,
		Prefix:    s.prefix == "on" || s.prefix.String() == "auto" && e.isTerminal(e.stdout),
		Environ:   os.Environ(),
		Stdout:    e.stdout,
		Stderr:    e.stderr,
	}
	if !e.isTerminal(e.stdin) { // a command off the foreground may not read it
		c.Stdin = e.stdin
	}
	var err error
	if c.Executable, err = os.Executable(); err != nil {
		return c, fmt.Errorf("find own executable: %w", err)
	}
	tls, credential, err := e.security()
	if err != nil {
		return c, err
	}
	c.Worker = worker.Config{
		TLS: tls, Credential: credential,
		Servers: e.flags.server, ID: s.id, Endpoint: s.endpoint, Zone: s.zone, Capacity: s.capacity, Gossip: s.gossip,
		ShutdownTimeout: s.shutdownFor.d, Logger: s.logs.logger(e), Version: version(),
	}
	if err := c.Worker.Validate(); err != nil {
		return c, &usageError{err}
	}
	c.Keyspace.Name = keyspace
	return c, nil
}

// commandAfterDash wants CMD after --, so that its flags are not taken for ours.
// before are the arguments in front of it.
func commandAfterDash(cmd *cobra.Command, args []string, before int) (command []string, err error) {
	dash := cmd.ArgsLenAtDash()
	switch {
	case dash < 0 && len(args) > before:
		return nil, usage("%q: put -- before the command: %s", args[before], cmd.UseLine())
	case dash < 0 || len(args) == dash:
		return nil, usage("CMD is missing: %s", cmd.UseLine())
	case dash > before:
		return nil, usage("%q is one argument too many before --", args[before])
	case args[dash] == "":
		return nil, usage("CMD is empty")
	}
	return args[dash:], nil
}

// setKeyspace adds what the servers say of the keyspace. A strict one gains
// nothing by gossip, so a sidecar needs no port for it.
func setKeyspace(c *sidecar.Config, k *leaseholdv1.Keyspace) {
	c.Keyspace = sidecar.Keyspace{
		Name: k.GetName(), Partitions: k.GetPartitions(), TTL: time.Duration(k.GetTtlMs()) * time.Millisecond,
		Fenced: k.GetTakeover() == leaseholdv1.Takeover_TAKEOVER_FENCED,
	}
	if c.Worker.Gossip == "" && !c.Keyspace.Fenced {
		c.Worker.Gossip = worker.GossipOff
	}
}

// sidecarEnd turns the end of a sidecar into an error with its exit code.
func sidecarEnd(code int, err error) error {
	var refused *worker.RefusedError
	var start *sidecar.StartError
	var notHeld *sidecar.NotHeldError
	var config *sidecar.ConfigError
	switch {
	case err == nil && code == exitOK:
		return nil
	case err == nil:
		return &codedError{code: code} // the command has told why, or nobody
	case errors.As(err, &config):
		return &usageError{err}
	case errors.As(err, &start):
		return &codedError{start.Code, err} // whatever else is known: nothing of it has run
	case code == sidecar.CodeLostLease:
		return &codedError{code, err}
	case errors.As(err, &notHeld):
		return &codedError{exitRefused, err}
	case errors.As(err, &refused) && errors.Is(err, worker.ErrDenied):
		return &codedError{exitDenied, &hintError{err, accessStep(refused.Detail.GetReason())}}
	case errors.Is(err, worker.ErrWorkerIDInUse):
		return &codedError{exitRefused, &hintError{err, "give each sidecar a name of its own with --id"}}
	case errors.As(err, &refused):
		if by, ok := exitByReason[refused.Detail.GetReason()]; ok {
			return &codedError{by, err}
		}
	case code > exitDenied:
		return &codedError{code, err}
	}
	return err
}

type runFlags struct {
	sidecarFlags
	keyspace string
	mode     modeFlag
}

// modeFlag is a sidecar.Mode.
type modeFlag sidecar.Mode

// String implements pflag.Value.
func (f *modeFlag) String() string { return string(*f) }

// Type implements pflag.Value.
func (*modeFlag) Type() string { return "mode" }

// Set implements pflag.Value.
func (f *modeFlag) Set(s string) error {
	switch m := sidecar.Mode(s); m {
	case sidecar.PerPartition, sidecar.PerWorker:
		*f = modeFlag(m)
		return nil
	}
	return fmt.Errorf("want %s or %s", sidecar.PerPartition, sidecar.PerWorker)
}

func newRunCommand(e env) *cobra.Command {
	r := runFlags{mode: modeFlag(sidecar.PerPartition)}
	cmd := &cobra.Command{
		Use:   "run --keyspace K [flags] -- CMD [ARG]...",
		Short: "Make a worker of any command: it runs where its partition is owned",
		Long: `run is a worker for programs in any language. It takes part in a keyspace and
runs CMD for what it is granted.

Mode per-partition (the default): one CMD for each partition that is owned, with
LEASEHOLD_KEYSPACE, LEASEHOLD_PARTITION, LEASEHOLD_PARTITIONS (how many there
are), LEASEHOLD_TOKEN, LEASEHOLD_RANGE (first-last hash, hexadecimal),
LEASEHOLD_TTL (such as 10s), LEASEHOLD_TTL_MS and LEASEHOLD_OWNER in its
environment. Its process group gets SIGTERM when the partition moves away, and
SIGKILL when the time to drain is over. The lease is released as soon as CMD has
ended, and so has everything it left behind. Exit code 0 gives the partition
back; any other counts as a failure, and this sidecar starts CMD for that
partition again after 0.5 s, 1 s, 2 s … 1 min at the earliest.

Mode per-worker: one CMD for all partitions, and an HTTP API on the Unix socket
LEASEHOLD_SOCKET: GET /v1/leases, GET /v1/watch (server-sent events), GET or POST
/v1/check, POST /v1/ready and /v1/release. A partition that drains or was lost
must be released by CMD in time (release_ms); in a strict keyspace CMD is killed
if it is not. When CMD ends, everything is released and run ends.

CMD gives the token to the resource with each write: only a resource that
refuses an older token is safe from a process that was paused.

CMD inherits the environment and in it the names of files of LEASEHOLD_TLS_* and
LEASEHOLD_CREDENTIAL_FILE, for leasehold commands of its own. What is in the files
it finds neither there nor in its arguments.

CMD dies with the sidecar, also when that is killed, and before its lease can be
granted to somebody else, also when the sidecar is stopped. Forked processes are
killed too. SIGTERM and SIGINT drain and end it in order; a second one ends it at
once.

Exit codes: per-worker CMD's own, or 128 + signal; 0 after an orderly end; 75 the
lease was lost for good; 126 or 127 CMD cannot be run; else as for all commands.`,
		Example: `  leasehold run --keyspace orders -- ./consume.sh
  leasehold run --keyspace orders --id w1 --prefix on -- sh -c 'echo "token $LEASEHOLD_TOKEN"; exec sleep 3600'
  leasehold run --keyspace orders --mode per-worker -- python3 worker.py
  curl --unix-socket "$LEASEHOLD_SOCKET" http://sidecar/v1/leases   # in CMD`,
		Args: func(cmd *cobra.Command, args []string) error {
			_, err := commandAfterDash(cmd, args, 0)
			return err
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			command, err := commandAfterDash(cmd, args, 0)
			if err != nil {
				return err
			}
			return r.run(cmd.Context(), e, command)
		},
	}
	f := cmd.Flags()
	f.StringVar(&r.keyspace, "keyspace", "", "`name` of the keyspace to work on")
	f.Var(&r.mode, "mode", "per-partition: one CMD for each partition; per-worker: one for all")
	f.Uint32Var(&r.capacity, "capacity", 0, "the most partitions it is given; 0: no limit (env LEASEHOLD_CAPACITY)")
	layered(f, "capacity")
	r.define(cmd, "default host name and keyspace, behind the name in a worker's certificate")
	complete(cmd, "mode", fixed(string(sidecar.PerPartition), string(sidecar.PerWorker)))
	complete(cmd, "keyspace", flagNames(e, keyspaceNames))
	return cmd
}

func (r *runFlags) run(ctx context.Context, e env, command []string) error {
	if r.keyspace == "" {
		return usage("--keyspace is missing: which one shall it work on?")
	}
	if r.id == "" {
		id, err := hostID(e, "-"+r.keyspace)
		if err != nil {
			return err
		}
		r.id = id
	}
	cfg, err := r.config(e, r.keyspace, command)
	if err != nil {
		return err
	}
	cfg.Mode = sidecar.Mode(r.mode)
	k, err := r.find(ctx, e)
	if err != nil {
		return err
	}
	setKeyspace(&cfg, k)
	series, stop, err := r.metrics.serve(cfg.Worker.Logger)
	if err != nil {
		return err
	}
	defer stop()
	cfg.Worker.Metrics = series
	return sidecarEnd(sidecar.Run(ctx, cfg))
}

// find asks for the keyspace, so that what is wrong is said before anything is
// started.
func (r *runFlags) find(ctx context.Context, e env) (*leaseholdv1.Keyspace, error) {
	c, err := e.connect()
	if err != nil {
		return nil, err
	}
	defer c.Close()
	k, err := c.Keyspaces().GetKeyspace(ctx, &leaseholdv1.GetKeyspaceRequest{Name: r.keyspace})
	if err != nil {
		return nil, fmt.Errorf("run keyspace %q: %w", r.keyspace, err)
	}
	return k, nil
}

// hostID is a worker id from the host name, which is cut where the whole would
// be too long. It begins with the name in the worker's certificate, if there is one:
// the servers let it have no other.
func hostID(e env, suffix string) (string, error) {
	host, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("read host name for --id: %w", err)
	}
	if file := e.flags.security.TLS.Cert; file != "" {
		cert, err := pki.ParseCertificate(file)
		if err != nil {
			return "", &usageError{err}
		}
		own, err := pki.NameOf(cert)
		if err == nil && own.Role == access.Worker && own.Name != host && !strings.HasPrefix(host, own.Name+"-") && !strings.HasPrefix(host, own.Name+".") {
			host = own.Name + "-" + host
		}
	}
	if len(suffix) > worker.MaxNameLen-1 {
		return "", usage("--keyspace of %d bytes: at most %d", len(suffix)-1, worker.MaxNameLen-2)
	}
	return host[:min(len(host), worker.MaxNameLen-len(suffix))] + suffix, nil
}

// newKeeperCommand is the process that a sidecar's commands are children of.
// People do not call it.
func newKeeperCommand(e env) *cobra.Command {
	return &cobra.Command{
		Use:    sidecar.KeeperCommand,
		Short:  "Be the parent of a sidecar's commands",
		Hidden: true,
		Args:   exactArgs(),
		RunE: func(*cobra.Command, []string) error {
			if e.getenv(sidecar.KeeperEnv) == "" {
				return usage("this is started by leasehold run, not by people")
			}
			return sidecar.RunKeeper(os.NewFile(3, "requests"), os.NewFile(4, "reports"))
		},
	}
}
