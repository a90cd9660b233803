package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"

	"github.com/leasehold-dev/leasehold/ownership/server"
	"github.com/leasehold-dev/leasehold/raftstore"
)

// What can be seen of a server's surroundings without starting it.

// lookAround looks at the directory, the files of keys and certificates and, if
// asked, the ports.
func (c *configFlags) lookAround(cfg server.Config, bind bool) []error {
	var faults []error
	add := func(flag, value, problem string) {
		faults = append(faults, c.fault(flag, value, problem))
	}
	if cfg.DataDir != "" {
		if err := checkDir(cfg.DataDir); err != nil {
			add("data-dir", cfg.DataDir, err.Error())
		}
		if stored := raftstore.StoredID(cfg.DataDir); stored != "" && cfg.ID != "" && stored != cfg.ID {
			add("id", cfg.ID, fmt.Sprintf("the data directory %s belongs to server %q: leave --id out, or give the directory that is this server's", cfg.DataDir, stored))
		}
	}
	for _, f := range []struct{ flag, file string }{{"gossip-key-file", c.gossipKeyFile}, {"tls-key-file", cfg.TLS.Key}} {
		if err := checkPrivate(f.file); err != nil {
			add(f.flag, "", err.Error())
		}
	}
	if t := cfg.TLS; t.Cert != "" && t.Key != "" && t.CA != "" {
		if err := cfg.CheckCertificates(); err != nil {
			add("tls-cert-file", "", err.Error())
		}
	}
	if bind {
		for _, l := range listeners(cfg) {
			if err := tryListen(l.addr, l.udp); err != nil {
				add(l.flag, l.addr, fmt.Sprintf("cannot listen: %v (is a server running here?)", err))
			}
		}
	}
	return faults
}

// checkDir tells whether a directory can be written to, or made where it is
// not there yet.
func checkDir(dir string) error {
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		parent := filepath.Dir(filepath.Clean(dir))
		if parent == filepath.Clean(dir) {
			return err
		}
		if err := checkDir(parent); err != nil {
			return fmt.Errorf("cannot be made: %w", err)
		}
		return nil
	case err != nil:
		return err
	case !info.IsDir():
		return fmt.Errorf("%s is not a directory", dir)
	}
	if err := writable(dir); err != nil {
		return fmt.Errorf("%s cannot be written to by this user: %w", dir, err)
	}
	return nil
}

// checkPrivate tells whether others can read a file that holds a secret. That
// it cannot be read at all, or that there is none, is not its business.
func checkPrivate(file string) error {
	if file == "" {
		return nil
	}
	info, err := os.Stat(file)
	if err == nil && info.Mode().Perm()&0o004 != 0 {
		return fmt.Errorf("%s can be read by every user of this machine: chmod o-rwx %s", file, file)
	}
	return nil
}

type listener struct {
	flag, addr string
	udp        bool
}

func listeners(cfg server.Config) []listener {
	all := []listener{
		{"grpc-addr", cfg.GRPCAddr, false}, {"raft-addr", cfg.RaftAddr, false},
		{"gossip-addr", cfg.GossipAddr, true}, {"http-addr", cfg.HTTPAddr, false},
	}
	if cfg.AdminAddr != "" {
		all = append(all, listener{"admin-addr", cfg.AdminAddr, false})
	}
	return all
}

// tryListen listens for a moment.
func tryListen(addr string, udp bool) error {
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	defer ln.Close()
	if !udp {
		return nil
	}
	packets, err := net.ListenPacket("udp", ln.Addr().String())
	if err != nil {
		return err
	}
	return packets.Close()
}
