package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// target is a kind of cluster of three server processes.
type target struct {
	name string
	// command returns the arguments of server i, the first being the program.
	command func(c *cluster, i int) []string
	ports   int // how many each server needs; the first is for clients
}

// cluster is one that runs.
type cluster struct {
	target
	dir   string
	ports [3][]int
	procs [3]*exec.Cmd
}

func leaseholdTarget(binary string) target {
	return target{name: "leasehold", ports: 4, command: func(c *cluster, i int) []string {
		var join []string
		for j := range c.ports {
			join = append(join, local(c.ports[j][2]))
		}
		return []string{binary, "server", "--id", name(i), "--data-dir", filepath.Join(c.dir, name(i)),
			"--grpc-addr", local(c.ports[i][0]), "--raft-addr", local(c.ports[i][1]), "--gossip-addr", local(c.ports[i][2]),
			"--http-addr", "127.0.0.1:0", "--admin-addr", local(c.ports[i][3]), "--join", strings.Join(join, ","), "--bootstrap-expect", "3", "--log-level", "error"}
	}}
}

func etcdTarget(self string) target {
	return target{name: "etcd", ports: 2, command: func(c *cluster, i int) []string {
		var all []string
		for j := range c.ports {
			all = append(all, name(j)+"=http://"+local(c.ports[j][1]))
		}
		return []string{self, "serve-etcd", name(i), filepath.Join(c.dir, name(i)),
			local(c.ports[i][0]), local(c.ports[i][1]), strings.Join(all, ",")}
	}}
}

func ceilingTarget(self string) target {
	return target{name: "ceiling", ports: 1, command: func(c *cluster, i int) []string {
		return []string{self, "serve-ceiling", local(c.ports[i][0])}
	}}
}

func name(i int) string     { return "s" + strconv.Itoa(i+1) }
func local(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// startCluster starts three servers in fresh directories under dir and waits
// until they answer.
func startCluster(ctx context.Context, t target, dir string) (*cluster, error) {
	dir, err := os.MkdirTemp(dir, t.name)
	if err != nil {
		return nil, err
	}
	c := &cluster{target: t, dir: dir}
	taken, err := freePorts(3 * t.ports)
	if err != nil {
		return nil, err
	}
	for i := range c.ports {
		c.ports[i] = taken[i*t.ports : (i+1)*t.ports]
	}
	for i := range c.procs {
		if err := c.start(i); err != nil {
			c.stop()
			return nil, err
		}
	}
	if err := c.ready(ctx); err != nil {
		c.stop()
		return nil, fmt.Errorf("%s did not get ready: %w", t.name, err)
	}
	return c, nil
}

// freePorts holds all of them until it returns, so that none comes twice.
func freePorts(n int) ([]int, error) {
	var ports []int
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close()
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}

func (c *cluster) start(i int) error {
	args := c.command(c, i)
	cmd := exec.Command(args[0], args[1:]...)
	log, err := os.OpenFile(filepath.Join(c.dir, name(i)+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return err
	}
	c.procs[i] = cmd
	return nil
}

// kill ends server i as a power cut would.
func (c *cluster) kill(i int) {
	if p := c.procs[i]; p != nil {
		_ = p.Process.Kill()
		_ = p.Wait()
		c.procs[i] = nil
	}
}

func (c *cluster) stop() {
	for i := range c.procs {
		c.kill(i)
	}
	_ = os.RemoveAll(c.dir)
}

func (c *cluster) endpoints() []string {
	var list []string
	for i := range c.ports {
		list = append(list, local(c.ports[i][0]))
	}
	return list
}

// client speaks to all servers, or to those given.
func (c *cluster) client(only ...int) (*clientv3.Client, error) {
	endpoints := c.endpoints()
	if len(only) > 0 {
		endpoints = nil
		for _, i := range only {
			endpoints = append(endpoints, local(c.ports[i][0]))
		}
	}
	return clientv3.New(clientv3.Config{Endpoints: endpoints, DialTimeout: 5 * time.Second, Logger: zap.NewNop()})
}

// ready waits until every server answers a linearizable read.
func (c *cluster) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 60*time.Second)
	defer cancel()
	for i := range c.ports {
		cl, err := c.client(i)
		if err != nil {
			return err
		}
		for {
			try, stop := context.WithTimeout(ctx, 2*time.Second)
			_, err = cl.Put(try, "ready", name(i))
			if c.name == "ceiling" {
				_, err = cl.Get(try, "ready")
			}
			stop()
			if err == nil || ctx.Err() != nil {
				break
			}
			time.Sleep(50 * time.Millisecond)
		}
		_ = cl.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

// cpu is the processor time of all servers so far.
func (c *cluster) cpu() (time.Duration, error) {
	var sum time.Duration
	for _, p := range c.procs {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.Process.Pid))
		if err != nil {
			return 0, err
		}
		// After the name, which may have spaces: fields 14 and 15, in hundredths.
		f := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
		for _, at := range []int{11, 12} {
			n, err := strconv.Atoi(f[at])
			if err != nil {
				return 0, err
			}
			sum += time.Duration(n) * 10 * time.Millisecond
		}
	}
	return sum, nil
}

// ownCPU is the processor time of this process, which is the client, so far.
func ownCPU() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // cannot fail
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// leader is the number of the server that leads.
func (c *cluster) leader(ctx context.Context) (int, error) {
	for i := range c.ports {
		if c.procs[i] == nil {
			continue
		}
		cl, err := c.client(i)
		if err != nil {
			return 0, err
		}
		try, stop := context.WithTimeout(ctx, 2*time.Second)
		st, err := cl.Status(try, local(c.ports[i][0]))
		stop()
		_ = cl.Close()
		if err == nil && st.Leader == st.Header.MemberId {
			return i, nil
		}
	}
	return 0, fmt.Errorf("no server of %s says that it leads", c.name)
}
