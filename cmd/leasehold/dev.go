package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/client"
	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"github.com/leasehold-dev/leasehold/ownership/server"
	"github.com/leasehold-dev/leasehold/ownership/worker"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
)

// maxDevWorkers is what fits into a process that is for trying things out.
const maxDevWorkers = 64

type devFlags struct {
	cfg        server.Config
	logs       logFlags
	keys       keyFlags
	workers    int
	keyspace   string
	partitions uint32
	// partitionsGiven says that the number was asked for, not the default.
	partitionsGiven bool
	ttl             durationFlag
	takeover        takeoverFlag
}

func newDevCommand(e env) *cobra.Command {
	d := devFlags{
		cfg:      server.DevConfig(),
		ttl:      durationFlag{d: 10 * time.Second},
		takeover: takeoverFlag{leaseholdv1.Takeover_TAKEOVER_STRICT},
	}
	cmd := &cobra.Command{
		Use:   "dev",
		Short: "Run one server in memory to try things on",
		Long: `Run one server with everything on, on loopback, with a keyspace to begin with. It
is ready in about a second and prints what to do next. Nothing is kept when it
ends, unless --data-dir is given. It is not for production.`,
		Example: `  leasehold dev
  leasehold dev --workers 3 --partitions 12   # with workers that hold partitions and do nothing
  leasehold dev --data-dir ./leasehold-data --grpc-addr 127.0.0.1:0`,
		Args: exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if d.workers < 0 || d.workers > maxDevWorkers {
				return usage("--workers %d: want 0 to %d", d.workers, maxDevWorkers)
			}
			d.partitionsGiven = cmd.Flags().Changed("partitions")
			d.keys.set(&d.cfg)
			d.cfg.Version = version()
			kept := &logRing{}
			d.cfg.Logger, d.cfg.RecentLog, d.cfg.Secrets = kept.keepIn(d.logs.logger(e)), kept.text, e.secrets()
			d.cfg.LibraryMetrics = true
			if err := d.cfg.Validate(); err != nil {
				return &usageError{err}
			}
			return d.run(cmd.Context(), e)
		},
	}
	f := cmd.Flags()
	listenFlags(f, &d.cfg)
	f.StringVar(&d.cfg.DataDir, "data-dir", "", "keep state in this `directory` (default in memory) (env LEASEHOLD_DATA_DIR)")
	layered(f, "data-dir")
	d.keys.define(f, &d.cfg)
	f.IntVar(&d.workers, "workers", 0, "run `N` workers in this process that hold partitions and do nothing")
	f.StringVar(&d.keyspace, "keyspace", "demo", "`name` of the keyspace to begin with")
	f.Uint32Var(&d.partitions, "partitions", 16, "number of its partitions, if it is new")
	f.Var(&d.ttl, "ttl", "how long a silent worker keeps its partitions, if the keyspace is new")
	f.Var(&d.takeover, "takeover", "strict or fenced, if the keyspace is new")
	complete(cmd, "takeover", fixed("strict", "fenced"))
	d.logs.define(cmd, slog.LevelError) // the banner should stay in sight
	return cmd
}

// run starts the server, then the workers, and stops them in reverse.
func (d *devFlags) run(ctx context.Context, e env) error {
	srv, err := server.New(d.cfg)
	if err != nil {
		return err
	}
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- srv.Run(serving) }()

	err = d.serve(ctx, e, srv, ended)
	stop()
	err = errors.Join(err, <-ended)
	var stopped *signalError
	if errors.As(context.Cause(ctx), &stopped) && (err == nil || errors.Is(err, context.Canceled) || errors.As(err, &stopped)) {
		return nil // it was asked to
	}
	return err
}

// serve returns when ctx ends, or the server has; then it leaves its error in
// ended.
func (d *devFlags) serve(ctx context.Context, e env, srv *server.Server, ended chan error) error {
	select {
	case <-srv.Ready():
	case err := <-ended:
		ended <- err
		return nil
	case <-ctx.Done():
		return nil
	}
	k, err := d.createKeyspace(ctx, srv.Addrs().GRPC)
	if err != nil {
		return err
	}
	if err := d.banner(e, srv.Addrs(), k); err != nil {
		return err
	}
	g, working := errgroup.WithContext(ctx)
	for i := range d.workers {
		g.Go(func() error {
			id := fmt.Sprintf("dev-%d", i+1)
			// A worker that was evicted, say, is no reason to take the server away.
			if err := d.idle(working, srv.Addrs().GRPC, id); err != nil && working.Err() == nil {
				return e.warn("worker %s has ended: %v", id, err)
			}
			return nil
		})
	}
	g.Go(func() error {
		select {
		case err := <-ended:
			ended <- err
			return errors.New("the server has ended")
		case <-working.Done():
			return nil
		}
	})
	return g.Wait()
}

// createKeyspace makes the keyspace, or finds the one of an earlier run.
func (d *devFlags) createKeyspace(ctx context.Context, addr string) (*leaseholdv1.Keyspace, error) {
	c, err := client.New(client.Config{Servers: addr, UserAgent: "leasehold-dev/" + version()})
	if err != nil {
		return nil, err
	}
	defer c.Close()
	k, err := c.Keyspaces().CreateKeyspace(ctx, &leaseholdv1.CreateKeyspaceRequest{
		Name: d.keyspace, Partitions: d.partitions, TtlMs: d.ttl.ms(), Takeover: d.takeover.t,
	})
	if client.Detail(err).GetReason() == leaseholdv1.ReasonExists {
		k, err = c.Keyspaces().GetKeyspace(ctx, &leaseholdv1.GetKeyspaceRequest{Name: d.keyspace})
		if err == nil && d.partitionsGiven && k.GetPartitions() != d.partitions {
			d.cfg.Logger.Error("the stored number of partitions stays: keys would move", "keyspace", d.keyspace,
				"stored", k.GetPartitions(), "asked", d.partitions)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("create keyspace %q: %w", d.keyspace, err)
	}
	return k, nil
}

// idle is a worker that holds what it is given.
func (d *devFlags) idle(ctx context.Context, addr, id string) error {
	w, err := worker.Join(ctx, worker.Config{Servers: addr, ID: id, Logger: d.cfg.Logger, Version: version()})
	if err != nil {
		return err
	}
	return w.Run(ctx, d.keyspace, func(ctx context.Context, l *worker.Lease) error {
		select {
		case <-l.Draining():
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	})
}

//go:embed snippet/worker.go.txt
var workerSnippet string

// workerProgram is a whole worker, to be copied and run.
func workerProgram(servers, keyspace string) string {
	return strings.NewReplacer(`"SERVERS"`, fmt.Sprintf("%q", servers), `"KEYSPACE"`, fmt.Sprintf("%q", keyspace)).Replace(workerSnippet)
}

// devResult is the banner for programs.
type devResult struct {
	GRPCAddr   string `json:"grpc_addr"`
	HTTPAddr   string `json:"http_addr"`
	RaftAddr   string `json:"raft_addr"`
	GossipAddr string `json:"gossip_addr"`
	DataDir    string `json:"data_dir"` // empty: in memory
	Keyspace   string `json:"keyspace"`
	Partitions uint32 `json:"partitions"`
	TTLMs      int64  `json:"ttl_ms"`
	Workers    int    `json:"workers"`
}

func (d *devFlags) banner(e env, a server.Addrs, k *leaseholdv1.Keyspace) error {
	if e.json() {
		return printJSON(e.stdout, devResult{a.GRPC, a.HTTP, a.Raft, a.Gossip, d.cfg.DataDir, k.GetName(), k.GetPartitions(), k.GetTtlMs(), d.workers})
	}
	state := "in memory, gone when this process ends (keep it with --data-dir)"
	if d.cfg.DataDir != "" {
		state = "in " + d.cfg.DataDir
	}
	inProcess := "none yet"
	if d.workers > 0 {
		inProcess = fmt.Sprintf("%d in this process", d.workers)
	}
	var program strings.Builder
	for line := range strings.Lines(workerProgram(a.GRPC, k.GetName())) {
		if line != "\n" {
			line = "    " + line
		}
		program.WriteString(line)
	}
	return e.say(`%s

  gRPC      %s
  console   http://%s/ui/
  HTTP      http://%s  (/metrics, /livez, /readyz, the API as JSON)
  state     %s
  keyspace  %s: %d partitions, TTL %s, %s
  workers   %s

Tell the other commands where it is:

    export LEASEHOLD_SERVER=%s
    leasehold partitions ls %s
    leasehold events -f

A worker (in a module that has required github.com/leasehold-dev/leasehold, save
it as main.go and run it twice, the second with another ID):

%s
Stop with Ctrl-C.`,
		e.paint(bold, "leasehold dev is ready. One server, not for production."),
		a.GRPC, a.HTTP, a.HTTP, state, k.GetName(), k.GetPartitions(), msText(k.GetTtlMs()), takeoverText(k.GetTakeover()), inProcess,
		a.GRPC, k.GetName(), program.String())
}
