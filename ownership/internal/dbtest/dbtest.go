// Package dbtest starts private, throw-away instances of the databases that
// tests need: PostgreSQL, MariaDB, Redis and PgBouncer, each from the binaries
// that are installed, in a directory of its own, on a free port of loopback,
// without a password and without an init system. They are ended, and their
// files removed, when the test is over.
//
// Where a binary is missing the test is skipped and says what to install;
// under LEASEHOLD_CI=1 it fails instead, so that a check can not go missing
// unnoticed. Servers write to disk as they do in production (fsync is on)
// unless an option says otherwise.
//
// An instance costs one to three seconds, so a package starts one in TestMain
// ([Shared]) and gives each test a database of its own.
package dbtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// missing says that what an instance is started from is not installed.
type missing struct{ what, pkg string }

func (m *missing) Error() string {
	return fmt.Sprintf("%s is not installed (Debian: apt-get install %s)", m.what, m.pkg)
}

// Instance is a running server.
type Instance struct {
	Host string // "127.0.0.1"
	Port int
	Dir  string // its files
	Pid  int    // of the server process, to stop and to kill it

	cmd  *exec.Cmd
	logs *lockedBuffer
	done chan struct{}
}

// Addr is host:port.
func (i *Instance) Addr() string { return net.JoinHostPort(i.Host, strconv.Itoa(i.Port)) }

// Kill ends the server as a crash does and waits for its end.
func (i *Instance) Kill() {
	_ = i.cmd.Process.Kill()
	<-i.done
}

// Log is what the server has printed so far, for a failing test.
func (i *Instance) Log() string { return i.logs.String() }

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// skip ends the test that cannot run: skipped, or failed under LEASEHOLD_CI=1.
func skip(t testing.TB, err error) {
	t.Helper()
	var m *missing
	if errors.As(err, &m) && os.Getenv("LEASEHOLD_CI") != "1" {
		t.Skip(m.Error())
	}
	t.Fatal(err)
}

// find looks for a binary on the PATH and where Debian puts it.
func find(name, pkg string, places ...string) (string, error) {
	if p, err := exec.LookPath(name); err == nil {
		return p, nil
	}
	for _, glob := range places {
		if found, _ := filepath.Glob(glob); len(found) > 0 {
			return found[len(found)-1], nil
		}
	}
	return "", &missing{name, pkg}
}

// as makes root's process run as an unprivileged user: PostgreSQL and MariaDB
// refuse root. It returns nil for everybody else.
func as(names ...string) (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	for _, name := range append(names, "nobody") {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
		gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
		if err := errors.Join(err1, err2); err != nil {
			return nil, err
		}
		return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
	}
	return nil, fmt.Errorf("none of the users %v exists to run a database as", names)
}

// place is what every server needs: an unprivileged user to run as, one of
// those named if root starts it, a directory that is the user's, and a port.
// The directory lies directly in /tmp: a socket's path may have about 100 bytes.
func place(name string, users ...string) (cred *syscall.Credential, in string, port int, err error) {
	if cred, err = as(users...); err != nil {
		return nil, "", 0, err
	}
	if port, err = freePort(); err != nil {
		return nil, "", 0, err
	}
	if in, err = os.MkdirTemp("/tmp", "lh-"+name+"-"); err != nil {
		return nil, "", 0, err
	}
	if cred != nil {
		if err := os.Chown(in, int(cred.Uid), int(cred.Gid)); err != nil {
			return nil, "", 0, errors.Join(err, os.RemoveAll(in))
		}
	}
	return cred, in, port, nil
}

// freePort finds a port that nobody listens at, below those that the kernel
// gives to outgoing connections: one of them might be taken before it is used.
func freePort() (int, error) {
	for range 1000 {
		port := 12_000 + rand.IntN(20_000)
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err == nil {
			return port, l.Close()
		}
	}
	return 0, errors.New("no free port between 12000 and 32000")
}

// start runs a server until stop is called. On Linux it dies with the test
// binary, whatever ends that.
func start(in string, cred *syscall.Credential, port int, ready func(context.Context, *Instance) error, argv ...string) (*Instance, error) {
	i := &Instance{Host: "127.0.0.1", Port: port, Dir: in, logs: &lockedBuffer{}, done: make(chan struct{})}
	i.cmd = exec.Command(argv[0], argv[1:]...)
	i.cmd.Dir = in
	i.cmd.Env = append(os.Environ(), "HOME="+in, "LC_ALL=C")
	i.cmd.Stdout, i.cmd.Stderr = i.logs, i.logs
	i.cmd.SysProcAttr = attr(cred)
	if err := i.cmd.Start(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(in))
	}
	i.Pid = i.cmd.Process.Pid
	go func() {
		_ = i.cmd.Wait()
		close(i.done)
	}()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	for {
		err := ready(ctx, i)
		if err == nil {
			return i, nil
		}
		select {
		case <-i.done:
			return nil, errors.Join(fmt.Errorf("%s ended at its start: %s", filepath.Base(argv[0]), i.Log()), os.RemoveAll(in))
		case <-ctx.Done():
			i.stop()
			return nil, fmt.Errorf("%s not ready in time: %w\n%s", filepath.Base(argv[0]), err, i.Log())
		case <-time.After(20 * time.Millisecond): // a condition outside this process
		}
	}
}

// stop ends the server and removes its files.
func (i *Instance) stop() {
	_ = syscall.Kill(-i.Pid, syscall.SIGCONT)
	_ = syscall.Kill(-i.Pid, syscall.SIGKILL)
	<-i.done
	_ = os.RemoveAll(i.Dir)
}

// accepts waits for a port that takes connections.
func accepts(ctx context.Context, i *Instance) error {
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", i.Addr())
	if err != nil {
		return err
	}
	return c.Close()
}

func runAs(cred *syscall.Credential, in string, argv ...string) error {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir = in
	cmd.Env = append(os.Environ(), "HOME="+in, "LC_ALL=C")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: cred}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(argv, " "), err, out)
	}
	return nil
}
