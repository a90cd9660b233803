package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/server"

	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// manager is a service manager's end of the socket.
type manager struct {
	t    *testing.T
	path string

	mu   sync.Mutex
	said []heardMessage
}

type heardMessage struct {
	at   time.Time
	text string
}

func newManager(t *testing.T) *manager {
	t.Helper()
	m := &manager{t: t, path: filepath.Join(t.TempDir(), "notify")}
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: m.path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	var done sync.WaitGroup
	done.Go(func() {
		buf := make([]byte, 4096)
		for {
			n, err := conn.Read(buf)
			if err != nil {
				return
			}
			m.mu.Lock()
			m.said = append(m.said, heardMessage{time.Now(), string(buf[:n])})
			m.mu.Unlock()
		}
	})
	t.Cleanup(func() { conn.Close(); done.Wait() })
	return m
}

// heard are the messages with the prefix.
func (m *manager) heard(prefix string) []heardMessage {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []heardMessage
	for _, s := range m.said {
		if strings.HasPrefix(s.text, prefix) {
			out = append(out, s)
		}
	}
	return out
}

func (m *manager) all() string {
	var b strings.Builder
	for _, s := range m.heard("") {
		fmt.Fprintf(&b, "%q\n", s.text)
	}
	return b.String()
}

// until waits for something that takes as long as the machine is slow.
func until(t *testing.T, what string, cond func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := poll(ctx, 10*time.Millisecond, func() (bool, error) { return cond(), nil }); err != nil {
		t.Fatalf("never: %s", what)
	}
}

func (m *manager) until(prefix string, n int) {
	m.t.Helper()
	until(m.t, fmt.Sprintf("%d times %q, heard:\n%s", n, prefix, m.all()), func() bool { return len(m.heard(prefix)) >= n })
}

// serve starts a real server, with a file of settings.
func serve(t *testing.T, file string, env []string, args ...string) *program {
	t.Helper()
	args = append([]string{"server", "--config", file, "--data-dir", filepath.Join(t.TempDir(), "data"), "--log-format", "json"}, args...)
	return startProgramEnv(t, env, append(args, freePorts...)...)
}

// The whole life of a server under a service manager.
func TestServiceManagerIsTold(t *testing.T) {
	m := newManager(t)
	p := serve(t, writeFile(t, "bootstrap_expect: 1\n"), []string{"NOTIFY_SOCKET=" + m.path, "WATCHDOG_USEC=1000000"}, "--id", "s1")
	m.until("READY=1", 1)
	m.until("STATUS=ready", 1)
	m.until("WATCHDOG=1", 6)
	beats := m.heard("WATCHDOG=1")
	for i := 1; i < len(beats); i++ {
		if d := beats[i].at.Sub(beats[i-1].at); d > 5*time.Second {
			t.Errorf("beat %d came %v after the one before, want about 500ms", i, d)
		}
	}
	// One that was heard late comes closer to the next.
	if d := beats[len(beats)-1].at.Sub(beats[0].at) / time.Duration(len(beats)-1); d < 250*time.Millisecond {
		t.Errorf("%d beats came %v apart, want about 500ms", len(beats), d)
	}
	p.stop(t)
	m.until("STOPPING=1", 1)
	m.until("EXTEND_TIMEOUT_USEC=", 1)
	if !strings.HasPrefix(m.heard("")[0].text, "STATUS=opening") || len(m.heard("READY=1")) != 1 || len(m.heard("EXTEND_TIMEOUT_USEC=20000000")) != 1 {
		t.Errorf("heard:\n%s", m.all())
	}
	if !strings.Contains(p.stderr.String(), fmt.Sprintf(`"feature":%d`, state.MaxFeature)) {
		t.Error("the feature level is not in the log")
	}
}

// A server that cannot start leaves the reason where systemctl status shows it.
func TestServiceThatFailsSaysWhy(t *testing.T) {
	m := newManager(t)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "server-id"), []byte("s1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := serve(t, writeFile(t, "bootstrap_expect: 1\n"), []string{"NOTIFY_SOCKET=" + m.path}, "--id", "s2", "--data-dir", dir)
	if err := p.cmd.Wait(); err == nil {
		t.Fatal("it started under another id")
	}
	m.until("STATUS=failed: ", 1)
	if said := m.heard("STATUS=failed: ")[0].text; !strings.Contains(said, "s1") || !strings.Contains(said, "s2") || len(m.heard("READY")) != 0 {
		t.Errorf("heard:\n%s", m.all())
	}
}

// A large log may take longer to open than the unit allows for a start.
func TestServiceAsksForTimeWhileOpening(t *testing.T) {
	m := newManager(t)
	synctest.Test(t, func(t *testing.T) {
		e := env{getenv: func(k string) string { return map[string]string{"NOTIFY_SOCKET": m.path}[k] }}
		cfg := server.DefaultConfig()
		cfg.Logger = slog.New(slog.DiscardHandler)
		s := newService(e, cfg)
		s.opening(func() { time.Sleep(4*extendEvery + time.Second) })
		time.Sleep(time.Hour) // nothing more is asked for
	})
	m.until("EXTEND_TIMEOUT_USEC=30000000", 4)
	if n := len(m.heard("EXTEND")); n != 4 || extendBy < 2*extendEvery {
		t.Errorf("heard:\n%s", m.all())
	}
}

// The first server of three is up before the others are there, and says what
// it waits for: otherwise nothing could ever start them one by one.
func TestServiceIsUpBeforeTheClusterIsFormed(t *testing.T) {
	m := newManager(t)
	p := serve(t, writeFile(t, "bootstrap_expect: 3\njoin: [127.0.0.1:1]\n"), []string{"NOTIFY_SOCKET=" + m.path}, "--id", "s1")
	m.until("READY=1", 1)
	m.until("STATUS=not ready: 1 of 3 servers seen", 1)
	p.stop(t)
	if got := m.heard("WATCHDOG"); len(got) != 0 {
		t.Errorf("no watchdog was asked for, heard %v", got)
	}
}

// Without a manager, or with one that is gone, a server is a server.
func TestServiceWithoutManager(t *testing.T) {
	for _, env := range [][]string{{"WATCHDOG_USEC=100000"}, {"NOTIFY_SOCKET=" + filepath.Join(t.TempDir(), "gone"), "WATCHDOG_USEC=x"}, {"NOTIFY_SOCKET=relative"}} {
		p := serve(t, writeFile(t, "bootstrap_expect: 1\n"), env, "--id", "s1")
		until(t, "ready", func() bool { return strings.Contains(p.stderr.String(), `"cluster formed"`) })
		p.stop(t)
	}
}

// A second SIGTERM means now, however the stop fares.
func TestServerSecondSignal(t *testing.T) {
	m := newManager(t)
	p := serve(t, writeFile(t, "bootstrap_expect: 1\n"), []string{"NOTIFY_SOCKET=" + m.path}, "--id", "s1")
	m.until("STATUS=ready", 1)
	// Both wait for it while it is stopped; whichever comes first asks.
	for _, sig := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGTERM, syscall.SIGINT, syscall.SIGCONT} {
		p.cmd.Process.Signal(sig)
	}
	p.cmd.Wait()
	code := p.cmd.ProcessState.ExitCode()
	if code != 128+int(syscall.SIGTERM) && code != 128+int(syscall.SIGINT) || !strings.Contains(p.stderr.String(), "second signal, stopping now") {
		t.Errorf("exit %d", code)
	}
}

// fakeServer is what a service sees of a server.
type fakeServer struct {
	reason atomic.Pointer[string]
	probe  atomic.Bool
}

func (f *fakeServer) Readiness() (bool, string) {
	r := *f.reason.Load()
	return r == "", r
}

func (f *fakeServer) Probe(context.Context) error {
	if f.probe.Load() {
		return nil
	}
	return errors.New("hangs")
}

// started returns a service on a server of the test's.
func started(t *testing.T, m *manager, reload func() error) (*fakeServer, chan os.Signal, context.CancelFunc) {
	t.Helper()
	f := &fakeServer{}
	f.say("no leader")
	e := env{getenv: func(k string) string { return map[string]string{"NOTIFY_SOCKET": m.path}[k] }}
	cfg := server.DefaultConfig()
	cfg.Logger = slog.New(slog.DiscardHandler)
	s := newService(e, cfg)
	s.watchdog = 100 * time.Millisecond
	hangups := make(chan os.Signal, 1)
	ctx, cancel := context.WithCancel(t.Context())
	s.start(ctx, f, hangups, reload)
	t.Cleanup(func() { cancel(); s.stop() })
	return f, hangups, cancel
}

func (f *fakeServer) say(reason string) { f.reason.Store(&reason) }

// Neither READY nor the watchdog goes on while Raft's main loop hangs, and the
// status line follows the server.
func TestServiceFollowsTheServer(t *testing.T) {
	m := newManager(t)
	f, _, cancel := started(t, m, func() error { return nil })
	m.until("STATUS=not ready: no leader", 1)
	if len(m.heard("READY")) != 0 {
		t.Fatal("ready before the store runs")
	}
	f.probe.Store(true)
	m.until("READY=1", 1)
	m.until("WATCHDOG=1", 3)
	f.say("")
	m.until("STATUS=ready", 1)

	f.probe.Store(false)
	f.say("the disk hangs")
	m.until("STATUS=not ready: the disk hangs", 1)
	// One beat that was on its way may still come; then none does, for longer
	// than the watchdog's patience.
	mark := len(m.heard("WATCHDOG=1")) + 1
	f.say("1")
	m.until("STATUS=not ready: 1", 1)
	if n := len(m.heard("WATCHDOG=1")); n > mark {
		t.Errorf("%d beats while the main loop hangs", n-mark+1)
	}
	f.probe.Store(true)
	m.until("WATCHDOG=1", mark+1)
	cancel()
	m.until("STOPPING=1", 1)
}

// A reload is announced and its end is told, also when it was refused. Before
// the server is up, none is begun: its end would say READY.
func TestServiceTellsOfReloads(t *testing.T) {
	m := newManager(t)
	var refuse atomic.Bool
	f, hangups, _ := started(t, m, func() error {
		if refuse.Load() {
			return errors.New("bad file")
		}
		return nil
	})
	hangups <- syscall.SIGHUP
	m.until("STATUS=not ready: no leader", 1)
	f.say("still none")
	m.until("STATUS=not ready: still none", 1)
	if len(m.heard("RELOADING")) != 0 {
		t.Fatalf("heard:\n%s", m.all())
	}
	f.probe.Store(true)
	m.until("RELOADING=1\nMONOTONIC_USEC=", 1)
	m.until("READY=1", 2)
	refuse.Store(true)
	hangups <- syscall.SIGHUP
	m.until("READY=1", 3)
	m.until("STATUS=not ready: still none; the last reload was refused", 1)
	refuse.Store(false)
	hangups <- syscall.SIGHUP
	m.until("READY=1", 4)
	m.until("STATUS=not ready: still none", 2+1)
}
