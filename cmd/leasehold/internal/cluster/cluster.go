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
	"os"
	"path/filepath"
	"strconv"
	"strings"
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
	group   *Group
	servers []*Server
}

// Server is one of them.
type Server struct {
	ID, GRPCAddr, HTTPAddr string

	args    []string
	logFile string
	conn    *grpc.ClientConn
	process *Process
}

// Start starts n servers with data below dir. It does not wait for a leader.
// Close the returned cluster's connections with Close; its processes belong
// to the group.
func Start(g *Group, dir string, n int) (*Cluster, error) {
	ports, err := freePorts(4 * n)
	if err != nil {
		return nil, err
	}
	addr := func(i, k int) string { return "127.0.0.1:" + strconv.Itoa(ports[4*i+k]) }
	var join []string
	for i := range n {
		join = append(join, addr(i, 2))
	}
	c := &Cluster{group: g}
	for i := range n {
		s := &Server{ID: fmt.Sprintf("s%d", i+1), GRPCAddr: addr(i, 0), HTTPAddr: addr(i, 3)}
		data := filepath.Join(dir, s.ID)
		if err := os.MkdirAll(data, 0o700); err != nil {
			return nil, fmt.Errorf("create data directory of %s: %w", s.ID, err)
		}
		s.logFile = filepath.Join(dir, s.ID+".log")
		s.args = []string{"server", "--id", s.ID, "--data-dir", data,
			"--grpc-addr", s.GRPCAddr, "--raft-addr", addr(i, 1), "--gossip-addr", addr(i, 2), "--http-addr", s.HTTPAddr,
			"--join", strings.Join(join, ","), "--bootstrap-expect", strconv.Itoa(n),
			"--election-timeout", ElectionTimeout.String()}
		if s.conn, err = grpc.NewClient(s.GRPCAddr, grpc.WithTransportCredentials(insecure.NewCredentials())); err != nil {
			return nil, errors.Join(fmt.Errorf("reach %s: %w", s.ID, err), c.Close())
		}
		c.servers = append(c.servers, s)
		if err := c.start(s); err != nil {
			return nil, errors.Join(err, c.Close())
		}
	}
	return c, nil
}

func (c *Cluster) start(s *Server) (err error) {
	s.process, err = c.group.Start(Spec{Name: s.ID, Args: s.args, LogFile: s.logFile})
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

// status asks one server, which answers without the leader.
func (s *Server) status(ctx context.Context) (*leaseholdv1.Status, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	return leaseholdv1.NewClusterServiceClient(s.conn).GetStatus(ctx, &leaseholdv1.GetStatusRequest{})
}

// WaitReady returns when every server says that it is ready, or at once when
// a server has ended.
func (c *Cluster) WaitReady(ctx context.Context) error {
	for _, s := range c.servers {
		for {
			st, err := s.status(ctx)
			if err == nil && st.GetReady() {
				break
			}
			if err == nil {
				err = errors.New(st.GetNotReadyReason())
			}
			if werr := s.pause(ctx); werr != nil {
				return fmt.Errorf("wait for %s to be ready (%w): %w", s.ID, err, werr)
			}
		}
	}
	return nil
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
			if st, err := s.status(ctx); err == nil && st.GetLeaderId() == s.ID {
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

// Restart starts a server that has ended, with its old data and addresses,
// and waits until it is ready. Should another process have taken one of its
// ports meanwhile, the start is repeated until ctx ends.
func (c *Cluster) Restart(ctx context.Context, s *Server) error {
	for {
		if err := c.start(s); err != nil {
			return err
		}
		err := c.WaitReady(ctx)
		if err == nil || ctx.Err() != nil {
			return err
		}
		select {
		case <-s.process.Done():
		default: // it is another server that ended
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(200 * time.Millisecond):
		}
	}
}
