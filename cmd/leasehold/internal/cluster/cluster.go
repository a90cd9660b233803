// Package cluster runs a small Leasehold cluster on this machine, each server
// a process of this same binary with its log and fsync on disk, and any other
// children that demo and bench need.
//
// Promise: when Group.Close has returned, no process that the group started
// is left; on Linux the kernel ends them too should their parent be killed.
// Processes are only ever signalled by their own ids.
//
// Goroutines: two per process (one serves its output and reaps it, one takes
// it off the group's list); they end with the process.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
)

// ElectionTimeout of the servers. The shortest TTL is six of it.
const ElectionTimeout = 500 * time.Millisecond

// Cluster is a number of server processes that form one Raft group. Methods
// are not safe for concurrent use.
type Cluster struct {
	group    *Group
	dir      string
	security *Security // nil: plaintext on loopback
	servers  []*Server
}

// Server is one of them.
type Server struct {
	ServerSpec
	GRPCAddr, RaftAddr, GossipAddr, HTTPAddr string

	dataDir string
	secured *Security // of its cluster
	join    string    // gossip addresses
	expect  int       // how many form the cluster; 0: it is added to one
	logFile string
	conn    *grpc.ClientConn
	process *Process
}

// ServerSpec says how a server is started. The zero value of each field but
// the ID is the usual.
type ServerSpec struct {
	ID string
	// Host has the listeners, on the ports 7400 and following, and nothing else
	// does. Empty: free ports on loopback.
	Host string
	// Wrap and Env are those of its Spec.
	Wrap, Env []string
}

// Start starts n servers, on loopback with data below dir. It does not wait
// for a leader. Close the returned cluster's connections with Close; its
// processes belong to the group.
func Start(g *Group, dir string, n int) (*Cluster, error) {
	return StartServers(g, dir, Specs(n))
}

// Specs are those of n usual servers: s1, s2, …
func Specs(n int) []ServerSpec {
	specs := make([]ServerSpec, n)
	for i := range specs {
		specs[i].ID = fmt.Sprintf("s%d", i+1)
	}
	return specs
}

// StartServers starts servers that form a cluster, each as its spec says.
func StartServers(g *Group, dir string, specs []ServerSpec) (*Cluster, error) {
	return StartSecure(g, dir, specs, nil)
}

// StartSecure is StartServers with certificates and encrypted gossip; nil: without.
func StartSecure(g *Group, dir string, specs []ServerSpec, security *Security) (*Cluster, error) {
	c := &Cluster{group: g, dir: dir, security: security}
	for _, spec := range specs {
		if _, err := c.add(spec); err != nil {
			return nil, errors.Join(err, c.Close())
		}
	}
	for _, s := range c.servers {
		s.join, s.expect = c.gossip(), len(specs)
		if err := c.Start(s); err != nil {
			return nil, errors.Join(err, c.Close())
		}
	}
	return c, nil
}

// Add starts one more server, which forms nothing: it waits until it is let
// into the cluster.
func (c *Cluster) Add(spec ServerSpec) (*Server, error) {
	s, err := c.add(spec)
	if err != nil {
		return nil, err
	}
	s.join = c.gossip()
	return s, c.Start(s)
}

// Forget takes a server that has ended off the list.
func (c *Cluster) Forget(s *Server) error {
	c.servers = slices.DeleteFunc(c.servers, func(o *Server) bool { return o == s })
	return s.conn.Close()
}

// add puts a server on the list, with addresses and a data directory.
func (c *Cluster) add(spec ServerSpec) (*Server, error) {
	s := &Server{ServerSpec: spec, secured: c.security, dataDir: filepath.Join(c.dir, spec.ID), logFile: filepath.Join(c.dir, spec.ID+".log")}
	if err := s.settle(); err != nil {
		return nil, err
	}
	c.servers = append(c.servers, s)
	return s, nil
}

// settle gives a server addresses and connects to them.
func (s *Server) settle() (err error) {
	host, ports := s.Host, []int{7400, 7401, 7402, 7480}
	if host == "" {
		host = "127.0.0.1"
		if ports, err = FreePorts(len(ports)); err != nil {
			return err
		}
	}
	for i, addr := range []*string{&s.GRPCAddr, &s.RaftAddr, &s.GossipAddr, &s.HTTPAddr} {
		*addr = net.JoinHostPort(host, strconv.Itoa(ports[i]))
	}
	creds := insecure.NewCredentials()
	if s.secured != nil {
		if creds, err = s.secured.transport(); err != nil {
			return err
		}
	}
	if s.conn, err = grpc.NewClient(s.GRPCAddr, grpc.WithTransportCredentials(creds)); err != nil {
		return fmt.Errorf("reach %s: %w", s.ID, err)
	}
	return nil
}

// Move gives a server that has ended new addresses, as a pod has after its
// restart. Servers that are started from now on are told of them, those that
// run and workers are not.
func (c *Cluster) Move(s *Server) error {
	if err := s.conn.Close(); err != nil {
		return err
	}
	if err := s.settle(); err != nil {
		return err
	}
	for _, o := range c.servers {
		o.join = c.gossip()
	}
	return nil
}

// Wipe empties the data directory of a server that has ended.
func (c *Cluster) Wipe(s *Server) error {
	if err := os.RemoveAll(s.dataDir); err != nil {
		return fmt.Errorf("wipe %s: %w", s.ID, err)
	}
	return nil
}

// gossip addresses of all servers.
func (c *Cluster) gossip() string {
	var all []string
	for _, s := range c.servers {
		all = append(all, s.GossipAddr)
	}
	return strings.Join(all, ",")
}

// Start starts a server that has ended, as it is. It does not wait until it
// is ready.
func (c *Cluster) Start(s *Server) (err error) {
	if err := os.MkdirAll(s.dataDir, 0o700); err != nil {
		return fmt.Errorf("create data directory of %s: %w", s.ID, err)
	}
	args := []string{"server", "--id", s.ID, "--data-dir", s.dataDir,
		"--grpc-addr", s.GRPCAddr, "--raft-addr", s.RaftAddr, "--gossip-addr", s.GossipAddr, "--http-addr", s.HTTPAddr,
		"--join", s.join, "--bootstrap-expect", strconv.Itoa(s.expect), "--election-timeout", ElectionTimeout.String()}
	switch {
	case s.secured != nil:
		flags, err := s.secured.server(s.ID)
		if err != nil {
			return err
		}
		args = append(args, flags...)
	case s.Host != "":
		args = append(args, "--insecure")
	}
	s.process, err = c.group.Start(Spec{Name: s.ID, Args: args, LogFile: s.logFile, Wrap: s.Wrap, Env: s.Env})
	return err
}

// Close closes the connections to the servers.
func (c *Cluster) Close() error {
	var errs []error
	for _, s := range c.servers {
		errs = append(errs, s.conn.Close())
	}
	return errors.Join(errs...)
}

// Servers in the order of their ids.
func (c *Cluster) Servers() []*Server { return c.servers }

// Process is the one that runs now or ran last.
func (s *Server) Process() *Process { return s.process }

// Addrs are the gRPC addresses, separated by commas.
func (c *Cluster) Addrs() string {
	var all []string
	for _, s := range c.servers {
		all = append(all, s.GRPCAddr)
	}
	return strings.Join(all, ",")
}

// Cluster is the service of this very server.
func (s *Server) Cluster() leaseholdv1.ClusterServiceClient {
	return leaseholdv1.NewClusterServiceClient(s.conn)
}

// Conn reaches this very server, whoever leads.
func (s *Server) Conn() *grpc.ClientConn { return s.conn }

// Status asks one server, which answers without the leader.
func (s *Server) Status(ctx context.Context) (*leaseholdv1.Status, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	return s.Cluster().GetStatus(ctx, &leaseholdv1.GetStatusRequest{})
}

// WaitReady returns when every server says that it is ready, or at once when
// a server has ended.
func (c *Cluster) WaitReady(ctx context.Context) error {
	for _, s := range c.servers {
		if err := s.WaitReady(ctx); err != nil {
			return err
		}
	}
	return nil
}

// WaitReady returns when the server says that it is ready, or at once when it
// has ended.
func (s *Server) WaitReady(ctx context.Context) error {
	for {
		st, err := s.Status(ctx)
		if err == nil && st.GetReady() {
			return nil
		}
		if err == nil {
			err = errors.New(st.GetNotReadyReason())
		}
		if werr := s.pause(ctx); werr != nil {
			return fmt.Errorf("wait for %s to be ready (%w): %w", s.ID, err, werr)
		}
	}
}

// pause waits a moment between two looks at a server.
func (s *Server) pause(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-s.process.Done():
		return fmt.Errorf("server ended, see %s: %w", s.logFile, s.process.failure())
	case <-time.After(20 * time.Millisecond):
		return nil
	}
}

// Leader returns the server that leads, as itself says.
func (c *Cluster) Leader(ctx context.Context) (*Server, error) {
	for {
		for _, s := range c.servers {
			if st, err := s.Status(ctx); err == nil && st.GetLeaderId() == s.ID {
				return s, nil
			}
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for a leader: %w", context.Cause(ctx))
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Kill ends a server with SIGKILL and waits for its end.
func (c *Cluster) Kill(s *Server) error {
	if err := s.process.Signal(os.Kill); err != nil {
		return err
	}
	<-s.process.Done()
	return nil
}

// Terminate ends a server with SIGTERM and waits for its end.
func (c *Cluster) Terminate(ctx context.Context, s *Server) error {
	if err := s.process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return fmt.Errorf("wait for the end of %s: %w", s.ID, context.Cause(ctx))
	case <-s.process.Done():
		return s.process.Err()
	}
}

// Restart starts a server that has ended, with its old data and addresses,
// and waits until it is ready. Should another process have taken one of its
// ports meanwhile, the start is repeated until ctx ends.
func (c *Cluster) Restart(ctx context.Context, s *Server) error {
	for {
		if err := c.Start(s); err != nil {
			return err
		}
		err := s.WaitReady(ctx)
		if err == nil || ctx.Err() != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(200 * time.Millisecond):
		}
	}
}
