package etcdapi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/leasehold-dev/leasehold/metrics"
	"github.com/leasehold-dev/leasehold/raftstore"
	"github.com/leasehold-dev/leasehold/raftstore/queue"
	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// Store is what the API needs of raftstore.Store, which says what each method
// promises.
type Store interface {
	Propose(ctx context.Context, cmds ...state.Command) ([]state.Result, error)
	ProposeUrgent(ctx context.Context, cmds ...state.Command) ([]state.Result, error)
	KeepAliveAsync(id state.SessionID, fn func(raftstore.KeepAlive, error))
	ClockAhead() time.Duration
	ReadIndex(ctx context.Context) (uint64, error)
	ReadIndexFor(ctx context.Context, server string, term uint64) (uint64, error)
	Attest() (server string, term uint64)
	WaitApplied(ctx context.Context, index uint64) error
	Read(ctx context.Context, fn func(*state.State)) error
	View(fn func(*state.State))
	AppliedIndex() uint64
	Notify(ch chan<- struct{}) (stop func())
	NotifyLeader(ch chan<- struct{}) (stop func())
	LeaderID() (id string, ok bool)
	IsLeader() bool
	Term() uint64
	Status() raftstore.Status
	LastContact() time.Duration
	ClusterID() string
	TransferLeadership(ctx context.Context, to ...raftstore.Peer) error
}

// etcdVersion is the release of etcd whose API this is, as clients are told.
const etcdVersion = "3.6.0"

// Defaults; the first is etcd's own limit.
const (
	DefaultMaxRequestBytes  = 3 << 19 // 1.5 MiB
	DefaultQuotaBytes       = 2 << 30
	DefaultCompactAge       = time.Hour
	DefaultCompactRevisions = 1_000_000
)

// Config of the API of one server.
type Config struct {
	// Store holds the state. Required. Its Config.Lead must run API.Lead.
	Store Store
	// ServerID and StoreID name this server and its data directory. ServerID is
	// required.
	ServerID, StoreID string
	// Version is this release's own; clients are told etcd's.
	Version string
	// Address finds where the API of a server is reached; "" when that is not
	// known. nil: where it said so itself in the log.
	Address func(serverID string) string
	// TLS says that the addresses of servers are reached over TLS.
	TLS bool
	// Dial are the options for connections to the leader. nil: no TLS.
	Dial []grpc.DialOption
	// MaxRequestBytes bounds one request. 0: DefaultMaxRequestBytes.
	MaxRequestBytes int
	// QuotaBytes is how large the keys and their history may grow before puts
	// are refused; 0: no bound.
	QuotaBytes int64
	// CompactAge is how long superseded versions of keys are kept; 0: for ever.
	CompactAge time.Duration
	// CompactRevisions is how many revisions are kept; 0: no bound.
	CompactRevisions int64
	// ElectionTimeout of the Raft group. Required.
	ElectionTimeout time.Duration
	// Clock is a boot clock, which never goes back. nil: time since New.
	Clock func() time.Duration
	// Wall is the wall clock. nil: time.Now.
	Wall func() time.Time
	// Queues of this server's waiters, which its other APIs share; whoever gives
	// them runs them. nil: queues of the API's own.
	Queues *queue.Queues
	// Login turns the name, or id, of a credential and a password into a token, with
	// the status codes Unauthenticated and ResourceExhausted for who fails, and who
	// fails too often. nil: nobody is asked who they are.
	Login func(ctx context.Context, name, password string) (token string, err error)
	// Unary and Stream are the interceptors before the calls that come as JSON over
	// HTTP, whose context has the caller (access.FromContext). They must ask Authorize.
	// nil: the table of permissions is asked, and nothing else is done.
	Unary  grpc.UnaryServerInterceptor
	Stream grpc.StreamServerInterceptor
	// Metrics may be nil.
	Metrics *metrics.Server
	// Logger; nil: slog.Default().
	Logger *slog.Logger
}

// withDefaults checks c and fills in what has a default.
func (c Config) withDefaults() (Config, error) {
	var errs []error
	need := func(ok bool, field, limit string) {
		if !ok {
			errs = append(errs, fmt.Errorf("configure etcd API: %s: %s", field, limit))
		}
	}
	need(c.Store != nil, "Store", "is required")
	need(c.ServerID != "", "ServerID", "is required")
	need(c.ElectionTimeout > 0, "ElectionTimeout", "is required")
	need((c.Unary == nil) == (c.Stream == nil), "Unary and Stream", "want both or none")
	need(c.MaxRequestBytes >= 0, "MaxRequestBytes", fmt.Sprintf("%d, want 0 (the default) or more", c.MaxRequestBytes))
	need(c.QuotaBytes >= 0, "QuotaBytes", fmt.Sprintf("%d, want 0 (none) or more", c.QuotaBytes))
	need(c.CompactAge >= 0, "CompactAge", fmt.Sprintf("%s, want 0s (never) or more", c.CompactAge))
	need(c.CompactRevisions >= 0, "CompactRevisions", fmt.Sprintf("%d, want 0 (no bound) or more", c.CompactRevisions))
	if len(errs) > 0 {
		return c, errors.Join(errs...)
	}
	if c.MaxRequestBytes == 0 {
		c.MaxRequestBytes = DefaultMaxRequestBytes
	}
	if c.Dial == nil {
		c.Dial = []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}
	}
	if c.Clock == nil {
		start := time.Now()
		c.Clock = func() time.Duration { return time.Since(start) }
	}
	if c.Wall == nil {
		c.Wall = time.Now
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c, nil
}

// callTimeout ends a call that came without a deadline, or with a later one, as
// etcd does: five seconds and two elections.
func (c *Config) callTimeout() time.Duration { return 5*time.Second + 2*c.ElectionTimeout }
