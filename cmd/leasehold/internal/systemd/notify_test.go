package systemd

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// manager is a socket as systemd has it.
func manager(t *testing.T, name string) *net.UnixConn {
	t.Helper()
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func read(t *testing.T, conn *net.UnixConn) string {
	t.Helper()
	buf := make([]byte, 4096)
	conn.SetReadDeadline(time.Now().Add(10 * time.Second))
	n, err := conn.Read(buf)
	if err != nil {
		t.Fatal(err)
	}
	return string(buf[:n])
}

func env(pairs ...string) func(string) string {
	return func(name string) string {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i] == name {
				return pairs[i+1]
			}
		}
		return ""
	}
}

func TestMessages(t *testing.T) {
	names := []string{filepath.Join(t.TempDir(), "notify")}
	if runtime.GOOS == "linux" {
		names = append(names, fmt.Sprintf("@leasehold-test-%d", os.Getpid()))
	}
	for _, name := range names {
		conn := manager(t, name)
		n, err := FromEnv(env("NOTIFY_SOCKET", name))
		if err != nil {
			t.Fatal(err)
		}
		for want, send := range map[string]func() error{
			"READY=1":                        n.Ready,
			"STOPPING=1":                     n.Stopping,
			"WATCHDOG=1":                     n.Alive,
			"STATUS=one READY=1 line":        func() error { return n.Status("one\nREADY=1\r\n line ") },
			"EXTEND_TIMEOUT_USEC=1500000":    func() error { return n.Extend(1500 * time.Millisecond) },
			"RELOADING=1\nMONOTONIC_USEC=*7": n.Reloading,
		} {
			if err := send(); err != nil {
				t.Fatalf("%s: %v", want, err)
			}
			got := read(t, conn)
			if head, digits, ok := strings.Cut(want, "*"); ok {
				if !strings.HasPrefix(got, head) || len(got) < len(head)+len(digits) || strings.Trim(got[len(head):], "0123456789") != "" {
					t.Errorf("got %q, want %q and digits", got, head)
				}
			} else if got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		}
	}
}

func TestWithoutManagerNothingIsSent(t *testing.T) {
	n, err := FromEnv(env())
	if n != nil || err != nil {
		t.Fatalf("got %v, %v", n, err)
	}
	for _, send := range []func() error{n.Ready, n.Stopping, n.Alive, n.Reloading} {
		if err := send(); err != nil {
			t.Error(err)
		}
	}
}

func TestSocketThatCannotBeUsedIsAnError(t *testing.T) {
	for _, name := range []string{"relative", "vsock:2:1234"} {
		if n, err := FromEnv(env("NOTIFY_SOCKET", name)); n != nil || err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%q: got %v, %v", name, n, err)
		}
	}
	n, err := FromEnv(env("NOTIFY_SOCKET", filepath.Join(t.TempDir(), "nobody")))
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Ready(); err == nil {
		t.Error("a message to nobody was sent")
	}
}

// A manager that does not read holds nobody up.
func TestManagerThatDoesNotRead(t *testing.T) {
	name := filepath.Join(t.TempDir(), "notify")
	manager(t, name)
	n, err := FromEnv(env("NOTIFY_SOCKET", name))
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	for range 100_000 {
		if err = n.Alive(); err != nil {
			break
		}
	}
	if err == nil || time.Since(start) > 30*time.Second {
		t.Errorf("error %v after %v", err, time.Since(start))
	}
}
