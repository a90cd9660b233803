package exampletest

import (
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"sync"
	"testing"

	"go.uber.org/goleak"
)

const module = "github.com/leasehold-dev/leasehold/"

// binaries are built once for each run of a test binary.
var binaries struct {
	mu   sync.Mutex
	dir  string
	path map[string]string
}

// Main runs the tests of a package, calls the stops, removes what was built,
// and fails when a goroutine is left over.
func Main(m *testing.M, stops ...func()) {
	code := m.Run()
	for _, stop := range stops {
		stop()
	}
	if binaries.dir != "" {
		_ = os.RemoveAll(binaries.dir)
	}
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// Build builds a command of this module, such as "cmd/leasehold", and returns
// where it is. An example is built with the race detector if the test is.
func Build(t testing.TB, pkg string) string {
	t.Helper()
	b := &binaries
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.dir == "" {
		dir, err := os.MkdirTemp("", "leasehold-examples-")
		if err != nil {
			t.Fatal(err)
		}
		b.dir, b.path = dir, map[string]string{}
	}
	if p, ok := b.path[pkg]; ok {
		return p
	}
	bin := filepath.Join(b.dir, path.Base(pkg))
	args := []string{"build", "-ldflags=-s -w", "-o", bin} // without tables for debuggers, in half the time
	if raceEnabled && pkg != "cmd/leasehold" {
		args = append(args, "-race")
	}
	if out, err := exec.Command("go", append(args, module+pkg)...).CombinedOutput(); err != nil {
		t.Fatalf("go build %s: %v\n%s", pkg, err, out)
	}
	b.path[pkg] = bin
	return bin
}
