package demo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/leasehold-dev/leasehold/cmd/leasehold/internal/cluster"
	"github.com/leasehold-dev/leasehold/ownership/client"
	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
)

// Stage is where a story is played: servers, workers that carry a stream of
// orders into a ledger, and the evidence of what happens. The demo plays on
// one, and so do the tests that make much more trouble.
//
// All that was started has ended when Close returns. It has one goroutine,
// which follows the cluster's events, beside those of package cluster.
type Stage struct {
	Dir     string
	Cluster *cluster.Cluster
	Client  *client.Client
	Ledger  *Ledger
	Record  *Recorder // the driver's evidence
	Board   *Board
	Fleet   *Fleet
	Source  Source

	cfg    StageConfig
	follow *cluster.Follower
	closes []func() error // in the order of opening
}

// StageConfig says what is there.
type StageConfig struct {
	Dir        string         // made if need be
	Group      *cluster.Group // owns the processes; Close closes it
	Servers    []cluster.ServerSpec
	Mode       Mode
	Partitions uint32
	TTL        time.Duration
	Seed       int64 // of the orders
	// Pace is the time between two orders of a partition.
	Pace    time.Duration
	Guarded bool
	// WorkerServers is where workers look for servers. Empty: where they are
	// at the start.
	WorkerServers string
}

// Keyspace is the name of the keyspace that the orders are spread over.
const Keyspace = "orders"

// RestartGrace is how long a restarting worker's partitions wait for it.
const RestartGrace = 20 * time.Second

// OpenStage starts the servers, creates the keyspace and opens ledger and
// evidence. No worker runs yet, and the stream begins with Begin.
func OpenStage(ctx context.Context, cfg StageConfig) (_ *Stage, err error) {
	s := &Stage{Dir: cfg.Dir, cfg: cfg}
	s.onClose(cfg.Group.Close)
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	if err := os.MkdirAll(s.path("evidence"), 0o700); err != nil {
		return nil, fmt.Errorf("create directory: %w", err)
	}
	if err := s.startServers(ctx); err != nil {
		return nil, err
	}
	if s.Ledger, err = OpenLedger(ctx, s.path("ledger.db"), cfg.Guarded); err != nil {
		return nil, err
	}
	s.onClose(s.Ledger.Close)
	if s.Record, err = NewRecorder(s.path("evidence"), DriverProcess, DriverProcess, nil); err != nil {
		return nil, err
	}
	s.onClose(s.Record.Close)
	return s, nil
}

func (s *Stage) path(name string) string { return filepath.Join(s.Dir, name) }

func (s *Stage) onClose(f func() error) { s.closes = append(s.closes, f) }

// Close ends everything, in the reverse order.
func (s *Stage) Close() error {
	var errs []error
	for i := len(s.closes) - 1; i >= 0; i-- {
		errs = append(errs, s.closes[i]())
	}
	s.closes = nil
	return errors.Join(errs...)
}

// startServers starts the servers and creates the keyspace.
func (s *Stage) startServers(ctx context.Context) (err error) {
	if s.Cluster, err = cluster.StartServers(s.cfg.Group, s.Dir, s.cfg.Servers); err != nil {
		return err
	}
	s.onClose(s.Cluster.Close)
	if err := s.Cluster.WaitReady(ctx); err != nil {
		return err
	}
	if s.Client, err = client.Dial(ctx, client.Config{Servers: s.Cluster.Addrs()}); err != nil {
		return err
	}
	s.onClose(s.Client.Close)
	takeover := leaseholdv1.Takeover_TAKEOVER_STRICT
	if s.cfg.Mode == Fenced {
		takeover = leaseholdv1.Takeover_TAKEOVER_FENCED
	}
	grace := RestartGrace.Milliseconds()
	_, err = s.Client.Keyspaces().CreateKeyspace(ctx, &leaseholdv1.CreateKeyspaceRequest{
		Name: Keyspace, Partitions: s.cfg.Partitions, TtlMs: s.cfg.TTL.Milliseconds(), Takeover: takeover, RestartGraceMs: &grace,
	})
	if err != nil {
		return fmt.Errorf("create keyspace: %w", err)
	}
	return nil
}

// Redial reaches the servers where they are now. The events are followed
// there, too, from where they were.
func (s *Stage) Redial(ctx context.Context) error {
	c, err := client.Dial(ctx, client.Config{Servers: s.Cluster.Addrs()})
	if err != nil {
		return err
	}
	s.Client = c
	s.onClose(c.Close)
	s.follow.Use(c)
	return nil
}

// Begin begins the stream of orders and follows the cluster's events. After
// it, workers may be started with the Fleet.
func (s *Stage) Begin(ctx context.Context) (err error) {
	s.follow, err = cluster.NewFollower(ctx, s.Client, Keyspace, func(e *leaseholdv1.Event) { copyEvent(s.Record, e) })
	if err != nil {
		return err
	}
	following, stop := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	go func() { defer close(done); s.follow.Run(following) }()
	s.onClose(func() error { stop(); <-done; return nil })

	s.Source = Source{Seed: s.cfg.Seed, Partitions: s.cfg.Partitions, Start: Now(), Pace: s.cfg.Pace}
	s.Board = newBoard(s.cfg.Partitions)
	servers := s.cfg.WorkerServers
	if servers == "" {
		servers = s.Cluster.Addrs()
	}
	s.Fleet = newFleet(s.cfg.Group, s.Dir, s.Board, s.Record, WorkerConfig{
		Servers: servers, Keyspace: Keyspace, Evidence: s.path("evidence"), Ledger: s.path("ledger.db"),
		Guarded: s.cfg.Guarded, Source: s.Source,
	})
	return nil
}

// EndOrders ends the stream and returns the number of the last order of each
// partition.
func (s *Stage) EndOrders() (last int64, err error) {
	last = s.Source.Arrived(Now()) + 1
	return last, s.Fleet.Tell(fmt.Sprintf("%s %d", sayLast, last))
}

// CatchUp waits until the driver's evidence has all of the cluster's events.
func (s *Stage) CatchUp(ctx context.Context) error { return s.follow.CatchUp(ctx) }

// Evidence reads back from disk what the processes wrote.
func (s *Stage) Evidence() (Evidence, error) { return ReadEvidence(s.path("evidence")) }
