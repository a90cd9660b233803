package worker

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/leasehold-dev/leasehold/ownership/client"
	"github.com/leasehold-dev/leasehold/ring/gossip"
)

// maxLearned bounds the servers remembered beyond the configured ones.
const maxLearned = 8

// maxShown bounds the servers taken from gossip: more than any cluster has.
const maxShown = 16

// directory knows the servers. A client is opened for each search and closed
// after it: between searches a worker has its stream's connection and no other,
// which a thousand workers' servers notice.
type directory struct {
	cfg client.Config

	// members shows servers too, nil while gossip does not run. When all servers
	// have come back at other addresses it is the only way to them.
	members atomic.Pointer[gossip.Gossip]

	mu      sync.Mutex
	learned []string // heard of and not configured, newest last
}

func newDirectory(cfg Config) *directory {
	return &directory{cfg: client.Config{
		Servers:    cfg.Servers,
		TLS:        cfg.TLS,
		Credential: cfg.Credential,
		UserAgent:  "leasehold-worker",
		Logger:     cfg.Logger,
		Dialer:     cfg.Dialer,
	}}
}

// open makes a client that knows every server heard of. The caller closes it.
func (d *directory) open() (*client.Client, error) {
	cfg := d.cfg
	d.mu.Lock()
	known := append([]string{cfg.Servers}, d.learned...)
	d.mu.Unlock()
	cfg.Servers = strings.Join(append(known, d.shown()...), ",")
	return client.New(cfg)
}

// shown are the servers that gossip sees, which refuses those of other
// clusters. What they say of themselves may be nonsense.
func (d *directory) shown() (addrs []string) {
	g := d.members.Load()
	if g == nil {
		return nil
	}
	for _, m := range g.Members() {
		if m.Meta.Role != gossip.RoleServer || !m.Up() {
			continue
		}
		if parsed, err := client.ParseServers(m.Meta.GRPCAddr); err == nil && len(parsed) == 1 {
			addrs = append(addrs, parsed[0])
		}
	}
	return addrs[:min(len(addrs), maxShown)]
}

// learn remembers what a search has found.
func (d *directory) learn(addrs []string) {
	configured, err := client.ParseServers(d.cfg.Servers)
	if err != nil {
		return // Join has parsed them
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, a := range addrs {
		if !slices.Contains(configured, a) && !slices.Contains(d.learned, a) {
			d.learned = append(d.learned, a)
		}
	}
	if n := len(d.learned); n > maxLearned {
		d.learned = slices.Delete(d.learned, 0, n-maxLearned)
	}
}
