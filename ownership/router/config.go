package router

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/leasehold-dev/leasehold/ownership/client"
)

// Defaults and bounds of a Config.
const (
	DefaultHeartbeat  = time.Second
	DefaultStaleAfter = 5 * time.Second
	MaxKeyspaces      = 64  // of one router
	maxNameLen        = 255 // bytes of a keyspace's name
	minHeartbeat      = 100 * time.Millisecond
	maxHeartbeat      = time.Minute
)

// Config says which keyspaces to follow, and where.
type Config struct {
	// Servers is a list of gRPC addresses of the cluster,
	// "10.0.0.1:7400,10.0.0.2:7400".
	Servers string

	// Keyspaces are the names of those to follow, 1 to MaxKeyspaces. One that
	// does not exist is followed from when it is created.
	Keyspaces []string

	// AnyServer follows the events at a server chosen at random, which spreads
	// the load of very many routers. The default is the leader: followers hear
	// of a change up to 100 ms later.
	AnyServer bool

	// Heartbeat is how often the server says that nothing has happened; after
	// three that did not come another server is taken. 0: DefaultHeartbeat.
	// From 100 ms to one minute.
	Heartbeat time.Duration

	// StaleAfter is the age from which Stats calls the table stale, and from
	// which a server that has heard nothing of a leader is left for another.
	// 0: DefaultStaleAfter. Not below three heartbeats.
	StaleAfter time.Duration

	// OnChange, if set, is called after the table shows another owner,
	// endpoint, token or state for a partition. A Route without an owner has
	// none now. It may be called from several goroutines at a time (compare
	// tokens), must return soon, and must not call the Router's Refresh.
	OnChange func(Route)

	// TLS, when not nil, encrypts connections to the servers and verifies them:
	// pki.Client makes it of files.
	TLS *tls.Config

	// Credential tells the servers who this is, for a router without a
	// certificate: client.CredentialFile reads it from a file. It needs TLS. The
	// role reader is enough.
	Credential client.Credential

	// Dialer replaces TCP towards the servers, for tests and special networks.
	Dialer func(ctx context.Context, addr string) (net.Conn, error)

	// Logger hears of lost servers and of lists taken again. nil is silent.
	Logger *slog.Logger
}

func (c *Config) validate() error {
	var errs []error
	refuse := func(field, value, limit string) {
		errs = append(errs, fmt.Errorf("%s %q: want %s", field, value, limit))
	}
	if n := len(c.Keyspaces); n == 0 || n > MaxKeyspaces {
		refuse("Keyspaces", fmt.Sprint(n), fmt.Sprintf("1 to %d names", MaxKeyspaces))
	}
	for i, name := range c.Keyspaces {
		switch {
		case name == "" || len(name) > maxNameLen || !utf8.ValidString(name):
			refuse("Keyspaces", fmt.Sprintf("%.40s", name), fmt.Sprintf("names of 1 to %d bytes", maxNameLen))
		case slices.Contains(c.Keyspaces[:i], name):
			refuse("Keyspaces", name, "each name once")
		}
	}
	if c.Heartbeat == 0 {
		c.Heartbeat = DefaultHeartbeat
	}
	if c.StaleAfter == 0 {
		c.StaleAfter = max(DefaultStaleAfter, 3*c.Heartbeat)
	}
	if c.Heartbeat < minHeartbeat || c.Heartbeat > maxHeartbeat {
		refuse("Heartbeat", c.Heartbeat.String(), fmt.Sprintf("%v to %v", minHeartbeat, maxHeartbeat))
	}
	if c.StaleAfter < 3*c.Heartbeat {
		refuse("StaleAfter", c.StaleAfter.String(), fmt.Sprintf("at least three heartbeats, %v", 3*c.Heartbeat))
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return errors.Join(errs...)
}
