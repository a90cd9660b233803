package difftest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Build builds the binary of Leasehold into dir and returns its path.
func Build(dir string) (string, error) {
	binary := filepath.Join(dir, "leasehold")
	cmd := exec.Command("go", "build", "-o", binary, "./cmd/leasehold")
	cmd.Dir = filepath.Join("..", "..", "..")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build leasehold: %w\n%s", err, out)
	}
	return binary, nil
}

// Leasehold is a cluster of server processes on loopback.
type Leasehold struct {
	Servers []*Server
	Addrs   []string // of gRPC, in the order of Servers
}

// Server is one process, or its place while it is down.
type Server struct {
	ID, GRPC, HTTP string

	binary, dir string
	args        []string
	mu          sync.Mutex
	cmd         *exec.Cmd
	done        chan struct{}
}

// StartLeasehold starts n servers with their data below dir. They elect a
// leader in about a second; calls that wait for ready succeed from then on.
func StartLeasehold(binary, dir string, n int, flags ...string) (*Leasehold, error) {
	l := &Leasehold{}
	var gossip []string
	all, err := freePorts(4 * n) // at once, so that they differ
	if err != nil {
		return nil, err
	}
	for i := range n {
		ports := all[4*i:]
		s := &Server{ID: "s" + strconv.Itoa(i+1), GRPC: ports[0], HTTP: ports[3], binary: binary, dir: dir}
		s.args = []string{"server", "--id", s.ID, "--data-dir", filepath.Join(dir, s.ID), "--grpc-addr", ports[0], "--raft-addr", ports[1],
			"--gossip-addr", ports[2], "--http-addr", ports[3], "--bootstrap-expect", strconv.Itoa(n)}
		s.args = append(s.args, flags...)
		gossip = append(gossip, ports[2])
		l.Servers = append(l.Servers, s)
		l.Addrs = append(l.Addrs, s.GRPC)
	}
	for _, s := range l.Servers {
		s.args = append(s.args, "--join", strings.Join(gossip, ","))
		if err := s.Start(); err != nil {
			l.Close()
			return nil, err
		}
	}
	return l, nil
}

// Close kills every process, each by its own id, and waits for its end.
func (l *Leasehold) Close() {
	for _, s := range l.Servers {
		_ = s.Kill()
	}
}

// Start starts the process.
func (s *Server) Start() error {
	if err := os.MkdirAll(filepath.Join(s.dir, s.ID), 0o700); err != nil {
		return fmt.Errorf("create data directory of %s: %w", s.ID, err)
	}
	log, err := os.OpenFile(s.LogFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("open log of %s: %w", s.ID, err)
	}
	defer log.Close()
	cmd := exec.Command(s.binary, s.args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "LEASEHOLD_") {
			cmd.Env = append(cmd.Env, v)
		}
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", s.ID, err)
	}
	done := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(done)
	}()
	s.mu.Lock()
	s.cmd, s.done = cmd, done
	s.mu.Unlock()
	return nil
}

// LogFile has what the process has printed.
func (s *Server) LogFile() string { return filepath.Join(s.dir, s.ID+".log") }

// Log is the end of it.
func (s *Server) Log() string {
	text, _ := os.ReadFile(s.LogFile())
	return string(text[max(0, len(text)-3000):])
}

// Signal sends a signal to exactly this process.
func (s *Server) Signal(sig syscall.Signal) error {
	s.mu.Lock()
	cmd := s.cmd
	s.mu.Unlock()
	if cmd == nil {
		return os.ErrProcessDone
	}
	return cmd.Process.Signal(sig)
}

// Kill ends the process with SIGKILL and waits for its end.
func (s *Server) Kill() error {
	err := s.Signal(syscall.SIGKILL)
	if err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	s.mu.Lock()
	done := s.done
	s.mu.Unlock()
	if done != nil {
		<-done
	}
	return nil
}

// Up reports whether the process runs.
func (s *Server) Up() bool {
	s.mu.Lock()
	done := s.done
	s.mu.Unlock()
	select {
	case <-done:
		return false
	default:
		return true
	}
}

// freePorts finds loopback addresses that are free for TCP and UDP, below the
// ports that the kernel gives to outgoing connections.
func freePorts(n int) ([]string, error) {
	var addrs []string
	for tries := 0; len(addrs) < n; tries++ {
		if tries > 100*n {
			return nil, errors.New("find free ports: too many between 12000 and 32000 are taken")
		}
		addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(12_000+rand.IntN(20_000)))
		tcp, err := net.Listen("tcp4", addr)
		if err != nil {
			continue
		}
		defer tcp.Close()
		udp, err := net.ListenPacket("udp4", addr)
		if err != nil {
			continue
		}
		defer udp.Close()
		addrs = append(addrs, addr)
	}
	return addrs, nil
}

// poll repeats look until it holds or ctx ends.
func poll(ctx context.Context, every time.Duration, look func() bool) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for !look() {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
	return nil
}
