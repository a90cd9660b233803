// Package bench measures what Leasehold's users wait for, on real servers and
// real sessions: how soon a new keyspace is assigned, how soon a dead worker's
// partitions run elsewhere, how long a handoff takes, how soon routers know of a
// move, what sessions cost.
//
// Without other servers named it starts three of its own, processes of this
// same binary on loopback with log and fsync on disk, and ends them again.
// Workers are processes of this binary too, some with many workers each. All
// times are taken where things happen, on the boot clock that the processes of
// a machine share.
//
// Not promised: figures that mean anything while something else is busy here.
//
// Goroutines: a bench is one, one more follows the cluster's events while
// handoffs or routers are measured, a router has two, and package cluster has
// two per process.
package bench

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/leasehold-dev/leasehold/cmd/leasehold/internal/cluster"
	"github.com/leasehold-dev/leasehold/cmd/leasehold/internal/identity"
	"github.com/leasehold-dev/leasehold/ownership/client"
	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
)

// Config is what all benches share.
type Config struct {
	// Servers, when not empty, are to be measured instead of own ones. Workers
	// still run on this machine.
	Servers string
	// Identity is who the benches and their workers are to those servers.
	Identity identity.Files
	// Progress is told, now and then, how far a bench is. nil: nobody.
	Progress func(format string, args ...any)
}

const (
	servers = 3
	// shortTTL is the shortest that own servers allow.
	shortTTL = 6 * cluster.ElectionTimeout
	// sessionTTL is the default of `keyspace create`.
	sessionTTL = 10 * time.Second
	// patience bounds a wait for something that should take seconds.
	patience = time.Minute
)

// bed is what a bench runs on.
type bed struct {
	cfg        Config
	dir        string
	group      *cluster.Group
	cluster    *cluster.Cluster // nil: somebody else's
	client     *client.Client
	tls        *tls.Config // of somebody else's servers; nil: none
	credential client.Credential
	addrs      string
	run        string // makes names of this run unique
	created    []string
}

// lay starts servers if there are none, and connects.
func lay(ctx context.Context, cfg Config) (b *bed, err error) {
	if cfg.Progress == nil {
		cfg.Progress = func(string, ...any) {}
	}
	var suffix [3]byte
	_, _ = rand.Read(suffix[:]) // never fails
	b = &bed{cfg: cfg, addrs: cfg.Servers, run: hex.EncodeToString(suffix[:])}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.close())
		}
	}()
	if b.dir, err = os.MkdirTemp("", "leasehold-bench-"); err != nil {
		return b, fmt.Errorf("create directory: %w", err)
	}
	if b.group, err = cluster.NewGroup(); err != nil {
		return b, err
	}
	ctx, cancel := within(ctx)
	defer cancel()
	if cfg.Servers == "" {
		cfg.Progress("starting %d servers", servers)
		if b.cluster, err = cluster.Start(b.group, b.dir, servers); err != nil {
			return b, err
		}
		if err = b.cluster.WaitReady(ctx); err != nil {
			return b, err
		}
		b.addrs = b.cluster.Addrs()
	}
	if b.tls, b.credential, err = cfg.Identity.Open(); err != nil {
		return b, err
	}
	b.client, err = client.Dial(ctx, client.Config{Servers: b.addrs, TLS: b.tls, Credential: b.credential})
	return b, err
}

// close ends all processes, removes the keyspaces from servers that stay, and
// the directory.
func (b *bed) close() error {
	var errs []error
	if b.group != nil {
		if b.cluster == nil && b.client != nil {
			errs = append(errs, b.removeKeyspaces())
		}
		errs = append(errs, b.group.Close())
	}
	if b.client != nil {
		errs = append(errs, b.client.Close())
	}
	if b.cluster != nil {
		errs = append(errs, b.cluster.Close())
	}
	if b.dir != "" {
		errs = append(errs, os.RemoveAll(b.dir))
	}
	return errors.Join(errs...)
}

func (b *bed) removeKeyspaces() error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	var errs []error
	for _, name := range b.created {
		if _, err := b.client.Keyspaces().DeleteKeyspace(ctx, &leaseholdv1.DeleteKeyspaceRequest{Name: name}); err != nil {
			errs = append(errs, fmt.Errorf("remove keyspace %s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

func within(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, patience, fmt.Errorf("not within %v", patience))
}

// name is unique to this run.
func (b *bed) name(what string) string { return fmt.Sprintf("bench-%s-%s", what, b.run) }

// create creates a keyspace.
func (b *bed) create(ctx context.Context, name string, partitions uint32, ttl time.Duration, takeover leaseholdv1.Takeover, delay time.Duration) error {
	ms := delay.Milliseconds()
	_, err := b.client.Keyspaces().CreateKeyspace(ctx, &leaseholdv1.CreateKeyspaceRequest{
		Name: name, Partitions: partitions, TtlMs: ttl.Milliseconds(), Takeover: takeover, InitialDelayMs: &ms,
	})
	if err != nil {
		return fmt.Errorf("create keyspace %s: %w", name, err)
	}
	b.created = append(b.created, name)
	return nil
}

// Takeover names a mode of takeover.
func Takeover(strict bool) leaseholdv1.Takeover {
	if strict {
		return leaseholdv1.Takeover_TAKEOVER_STRICT
	}
	return leaseholdv1.Takeover_TAKEOVER_FENCED
}
