package difftest

import (
	"fmt"
	"net/url"
	"path/filepath"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
)

// Etcd is a cluster of etcd servers inside this process.
type Etcd struct {
	servers []*embed.Etcd
	Addrs   []string
}

// StartEtcd starts n servers with their data below dir, each write with its
// fsync, and waits until they serve.
func StartEtcd(dir string, n int) (*Etcd, error) {
	e := &Etcd{}
	var cfgs []*embed.Config
	cluster := ""
	ports, err := freePorts(2 * n)
	if err != nil {
		return nil, err
	}
	for i := range n {
		client, peer := url.URL{Scheme: "http", Host: ports[2*i]}, url.URL{Scheme: "http", Host: ports[2*i+1]}
		cfg := embed.NewConfig()
		cfg.Name = fmt.Sprintf("e%d", i+1)
		cfg.Dir = filepath.Join(dir, cfg.Name)
		cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
		cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
		cfg.LogLevel, cfg.LogOutputs = "panic", []string{"/dev/null"}
		cluster += fmt.Sprintf(",%s=%s", cfg.Name, peer.String())
		cfgs = append(cfgs, cfg)
		e.Addrs = append(e.Addrs, client.Host)
	}
	for _, cfg := range cfgs {
		cfg.InitialCluster = cluster[1:]
		s, err := embed.StartEtcd(cfg)
		if err != nil {
			e.Close()
			return nil, fmt.Errorf("start etcd: %w", err)
		}
		e.servers = append(e.servers, s)
	}
	for _, s := range e.servers {
		select {
		case <-s.Server.ReadyNotify():
		case err := <-s.Err():
			e.Close()
			return nil, fmt.Errorf("start etcd: %w", err)
		case <-time.After(30 * time.Second):
			e.Close()
			return nil, fmt.Errorf("start etcd: not ready in 30s")
		}
	}
	return e, nil
}

// Close stops the servers.
func (e *Etcd) Close() {
	for _, s := range e.servers {
		s.Close()
	}
}
