package worker

import (
	"slices"
	"strings"
	"sync"

	"github.com/leasehold-dev/leasehold/ownership/client"
)

// maxLearned bounds the servers remembered beyond the configured ones.
const maxLearned = 8

// directory knows the servers. A client is opened for each search and closed
// after it: between searches a worker has its stream's connection and no other,
// which a thousand workers' servers notice.
type directory struct {
	cfg client.Config

	mu      sync.Mutex
	learned []string // heard of and not configured, newest last
}

func newDirectory(cfg Config) *directory {
	return &directory{cfg: client.Config{
		Servers:   cfg.Servers,
		TLS:       cfg.TLS,
		UserAgent: "leasehold-worker",
		Logger:    cfg.Logger,
		Dialer:    cfg.Dialer,
	}}
}

// open makes a client that knows every server heard of. The caller closes it.
func (d *directory) open() (*client.Client, error) {
	cfg := d.cfg
	d.mu.Lock()
	cfg.Servers = strings.Join(append([]string{cfg.Servers}, d.learned...), ",")
	d.mu.Unlock()
	return client.New(cfg)
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
