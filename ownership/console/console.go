package console

import (
	"context"
	"embed"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/api"
	pb "github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"github.com/leasehold-dev/leasehold/ring/gossip"
)

//go:embed assets
var assets embed.FS

// Prefix is the path under which a server mounts the console.
const Prefix = "/ui/"

// Source is the server's own state. *api.API is one. No method waits for another
// server or a disk.
type Source interface {
	Status() *pb.Status
	Peers() []*pb.Peer
	Keyspaces() []*pb.Keyspace
	Workers() (items []*pb.Worker, leading bool)
	NewestEvents(after uint64, limit int) (items []*pb.Event, revision uint64)
	Look(t *api.PartitionTable)
}

// Gossip is the member table. *gossip.Gossip is one.
type Gossip interface {
	Members() []gossip.Member
}

// Config of the console of one server.
type Config struct {
	// Source and Gossip are what is shown. Required.
	Source Source
	Gossip Gossip
	// Server and Version are the server's. Server is required.
	Server, Version string
	// CLIServer is the host:port that commands to copy are given with --server.
	CLIServer string
	// Operator tells whether who sent a request may change something. nil: nobody
	// may.
	Operator func(*http.Request) bool
	// Wall is the wall clock. nil: time.Now.
	Wall func() time.Time
	// Interval is the least time between two messages. 0: half a second.
	Interval time.Duration
	// Logger; nil: slog.Default().
	Logger *slog.Logger
}

// Console of one server. All methods may be called from any goroutine.
type Console struct {
	cfg   Config
	log   *slog.Logger
	hub   *hub
	files map[string]*file
}

// New validates the configuration.
func New(cfg Config) (*Console, error) {
	switch {
	case cfg.Source == nil:
		return nil, errors.New("configure console: Source is required")
	case cfg.Gossip == nil:
		return nil, errors.New("configure console: Gossip is required")
	case cfg.Server == "":
		return nil, errors.New("configure console: Server is required")
	}
	if cfg.Operator == nil {
		cfg.Operator = func(*http.Request) bool { return false }
	}
	if cfg.Wall == nil {
		cfg.Wall = time.Now
	}
	if cfg.Interval == 0 {
		cfg.Interval = 500 * time.Millisecond
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	files, err := load(assets)
	if err != nil {
		return nil, err
	}
	return &Console{cfg: cfg, log: cfg.Logger, hub: newHub(&cfg), files: files}, nil
}

// Run feeds the viewers until ctx ends. Then their streams end at once, and no new
// one begins.
func (c *Console) Run(ctx context.Context) error { return c.hub.run(ctx) }

// Handler serves everything under Prefix.
func (c *Console) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+Prefix+"feed", c.feed)
	mux.HandleFunc("GET "+Prefix, c.asset)
	return headers(mux)
}
