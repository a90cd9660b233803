package main

import (
	"bytes"
	"context"
	"flag"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"go.uber.org/goleak"
)

var update = flag.Bool("update", false, "rewrite the files in testdata")

// asProgramEnv makes a copy of the test binary be the program, for tests that
// need a process.
const asProgramEnv = "LEASEHOLD_TEST_AS_PROGRAM"

// builtDir is where built puts the binary.
var builtDir string

func TestMain(m *testing.M) {
	if os.Getenv(asProgramEnv) != "" {
		main()
		return
	}
	// Most tests here wait for the timeouts of processes. As many at a time as
	// there are processors would leave those idle; -parallel says otherwise.
	if err := flag.Set("test.parallel", strconv.Itoa(max(4, runtime.GOMAXPROCS(0)))); err != nil {
		panic(err)
	}
	var err error
	if builtDir, err = os.MkdirTemp("", "leasehold-test-"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		if err := os.RemoveAll(builtDir); err != nil {
			panic(err)
		}
		os.Exit(code)
	}))
}

// lockedBuffer can be read while a command writes.
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

// cli is a command line in a test.
type cli struct {
	env      map[string]string
	stdin    string
	terminal bool // all three streams
	ctx      context.Context

	stdout, stderr lockedBuffer
}

// run runs one command line and returns its exit code.
func (c *cli) run(t testing.TB, args ...string) int {
	t.Helper()
	ctx := c.ctx
	if ctx == nil {
		ctx = t.Context()
	}
	return run(ctx, env{
		args:       args,
		stdin:      strings.NewReader(c.stdin),
		stdout:     &c.stdout,
		stderr:     &c.stderr,
		getenv:     func(k string) string { return c.env[k] },
		isTerminal: func(any) bool { return c.terminal },
	})
}

// want runs a command line that must end with the code, and returns its output.
func (c *cli) want(t testing.TB, code int, args ...string) (stdout, stderr string) {
	t.Helper()
	if got := c.run(t, args...); got != code {
		t.Fatalf("%s: exit %d, want %d\n%s%s", strings.Join(args, " "), got, code, c.stdout.String(), c.stderr.String())
	}
	return c.stdout.String(), c.stderr.String()
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	file := "testdata/" + name
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("output differs from %s; look, then run with -update. Got:\n%s", file, got)
	}
}

// The first signal asks, the second means now.
func TestSecondSignalMeansNow(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		exited := make(chan int, 1)
		var out lockedBuffer
		ctx, stop := signalContext(context.Background(), &out, func(code int) { exited <- code })
		syscall.Kill(os.Getpid(), sig)
		<-ctx.Done()
		if got := exitCode(context.Cause(ctx)); got != 128+int(sig) {
			t.Errorf("%v: cause %v has exit code %d", sig, context.Cause(ctx), got)
		}
		select {
		case code := <-exited:
			t.Fatalf("%v: exit %d at the first signal", sig, code)
		default:
		}
		syscall.Kill(os.Getpid(), sig)
		if code := <-exited; code != 128+int(sig) {
			t.Errorf("%v: exit %d", sig, code)
		}
		stop()
	}
}

func TestSignalContextWithoutSignal(t *testing.T) {
	ctx, stop := signalContext(context.Background(), &lockedBuffer{}, func(int) { t.Error("exit") })
	stop()
	if ctx.Err() == nil {
		t.Error("still live")
	}
}
