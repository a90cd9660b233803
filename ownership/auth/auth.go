package auth

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/grpc"

	"github.com/leasehold-dev/leasehold/metrics"
	"github.com/leasehold-dev/leasehold/ownership/pki"
	"github.com/leasehold-dev/leasehold/raftstore/access"
)

// Config of the authentication of one server.
type Config struct {
	// Certificates of the cluster. nil: the server runs without TLS, asks nobody,
	// and everybody is access.Anybody.
	Certificates *pki.Store
	// Lookup finds a credential by its id, LookupName by its name. They read this
	// server's own state and must not wait. nil: there is none.
	Lookup     func(id string) (access.Credential, bool)
	LookupName func(name string) (access.Credential, bool)
	// Fresh returns when this server's state holds all that any server had
	// acknowledged before. It is called when somebody shows a credential that is not
	// known here: it may have been made a moment ago, elsewhere. nil: it is not.
	Fresh func(ctx context.Context) error
	// Proven is told the address, port included, of whoever has presented a valid
	// credential. It must not wait. May be nil.
	Proven func(from string)
	// Rules of the APIs that the server offers.
	Rules []Rules
	// Now is the wall clock, against which credentials run out. nil: time.Now.
	Now func() time.Time
	// Logger; nil: slog.Default().
	Logger *slog.Logger
	// Metrics may be nil.
	Metrics *metrics.Server
	// Audit may be nil.
	Audit Recorder
}

// Auth authenticates and authorizes the calls of one server. All methods may be
// called from any goroutine.
type Auth struct {
	cfg    Config
	log    *slog.Logger
	failed *limiter
	fresh  *rate.Limiter // of questions to the leader
	lines  *rate.Limiter // of the log, about failed logins
	unsaid atomic.Int64  // failed logins since its last line
	calls  calls
}

// New makes the authentication of a server.
func New(cfg Config) *Auth {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	if cfg.Proven == nil {
		cfg.Proven = func(string) {}
	}
	none := func(string) (access.Credential, bool) { return access.Credential{}, false }
	if cfg.Lookup == nil {
		cfg.Lookup = none
	}
	if cfg.LookupName == nil {
		cfg.LookupName = none
	}
	a := &Auth{cfg: cfg, log: cfg.Logger, failed: newLimiter(cfg.Now), fresh: rate.NewLimiter(freshPerSecond, freshPerSecond), lines: rate.NewLimiter(failuresPerSecond, linesAtOnce)}
	a.calls.init(a)
	return a
}

// Open lets everybody do everything that the rules know: what a server without
// TLS does.
func Open(rules ...Rules) *Auth { return New(Config{Rules: rules}) }

// open reports whether nobody is asked.
func (a *Auth) open() bool { return a.cfg.Certificates == nil }

// ServerOptions are what a grpc.Server needs. They must come before those of the
// APIs: what they put in is run first.
func (a *Auth) ServerOptions() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.InTapHandle(a.arrive),
		grpc.ChainUnaryInterceptor(a.Unary),
		grpc.ChainStreamInterceptor(a.Stream),
	}
}
