package cluster

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// The test binary is also the child: with the word "echo" it says what it
// reads, with "exit" it ends with code 3.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "echo":
			fmt.Println("ready", os.Getenv("LEASEHOLD_SERVER"))
			fmt.Fprintln(os.Stderr, "a line for the log")
			lines := bufio.NewScanner(os.Stdin)
			for lines.Scan() {
				fmt.Println("heard", lines.Text())
			}
			return
		case "exit":
			os.Exit(3)
		}
	}
	goleak.VerifyTestMain(m)
}

func newGroup(t *testing.T) *Group {
	t.Helper()
	g, err := NewGroup()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	})
	return g
}

// echo starts a child and returns its lines.
func echo(t *testing.T, g *Group, name string) (*Process, <-chan string) {
	t.Helper()
	lines := make(chan string, 16)
	p, err := g.Start(Spec{
		Name: name, Args: []string{"echo"}, LogFile: filepath.Join(t.TempDir(), name+".log"),
		Line: func(b []byte) { lines <- string(b) },
	})
	if err != nil {
		t.Fatal(err)
	}
	return p, lines
}

func TestAChildIsHeardAndSpokenTo(t *testing.T) {
	t.Setenv("LEASEHOLD_SERVER", "10.0.0.1:7400") // must not reach a child
	p, lines := echo(t, newGroup(t), "c1")
	if got := strings.TrimSpace(<-lines); got != "ready" {
		t.Fatalf("child says %q: the user's environment configures it", got)
	}
	if err := p.Send("arm 17"); err != nil {
		t.Fatal(err)
	}
	if got := <-lines; got != "heard arm 17" {
		t.Fatalf("child says %q", got)
	}
	p.CloseInput()
	if err := p.Err(); err != nil {
		t.Fatalf("child ended with %v", err)
	}
	if err := p.Signal(os.Kill); !errors.Is(err, os.ErrProcessDone) {
		t.Fatalf("signal to a child that has ended: %v", err)
	}
}

func TestCloseLeavesNobodyBehind(t *testing.T) {
	g := newGroup(t)
	running, lines := echo(t, g, "running")
	<-lines
	stopped, lines := echo(t, g, "stopped")
	<-lines
	if err := stopped.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := g.Close(); err != nil {
		t.Fatal(err)
	}
	for _, p := range []*Process{running, stopped} {
		select {
		case <-p.Done():
		default:
			t.Fatalf("%s has not ended", p.Name)
		}
	}
	if _, err := g.Start(Spec{Name: "late", LogFile: filepath.Join(t.TempDir(), "late")}); err == nil {
		t.Fatal("a closed group starts processes")
	}
}

func TestAStoppedChildDoesNothingUntilContinued(t *testing.T) {
	p, lines := echo(t, newGroup(t), "c1")
	<-lines
	if err := p.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := p.Send("while stopped"); err != nil {
		t.Fatal(err)
	}
	select {
	case got := <-lines:
		t.Fatalf("a stopped child says %q", got)
	case <-time.After(30 * time.Millisecond):
	}
	if err := p.Continue(); err != nil {
		t.Fatal(err)
	}
	if got := <-lines; got != "heard while stopped" {
		t.Fatalf("child says %q", got)
	}
}

func TestTheEndOfAChildIsTold(t *testing.T) {
	g := newGroup(t)
	p, err := g.Start(Spec{Name: "c1", Args: []string{"exit"}, LogFile: filepath.Join(t.TempDir(), "log")})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Err(); err == nil || !strings.Contains(err.Error(), "3") {
		t.Fatalf("exit code 3 reads %v", err)
	}
	if _, err := g.Start(Spec{Name: "c2", LogFile: filepath.Join(t.TempDir(), "no", "such", "directory")}); err == nil {
		t.Fatal("a child without a log was started")
	}
}

func TestProcessorTimeOfAChild(t *testing.T) {
	if runtime.GOOS != "linux" {
		return
	}
	p, lines := echo(t, newGroup(t), "c1")
	<-lines
	if cpu, err := p.CPU(); err != nil || cpu < 0 || cpu > time.Minute {
		t.Fatalf("processor time %v, %v", cpu, err)
	}
}

func TestFreePortsDiffer(t *testing.T) {
	ports, err := FreePorts(24)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[int]bool{}
	for _, p := range ports {
		if seen[p] || p == 0 {
			t.Fatalf("ports %v", ports)
		}
		seen[p] = true
	}
}
