package live

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
)

// Need returns where a program is. Without it the test is skipped; under
// LEASEHOLD_CI it fails.
func Need(tb testing.TB, program string) string {
	tb.Helper()
	path, err := exec.LookPath(program)
	switch {
	case err == nil:
	case os.Getenv("LEASEHOLD_CI") != "":
		tb.Fatalf("%s is missing, and LEASEHOLD_CI is set", program)
	default:
		tb.Skipf("%s is missing: install Debian's package prometheus", program)
	}
	return path
}

// binaries are built once for each test process.
var binaries struct {
	mu     sync.Mutex
	server string // the binary of Leasehold
	worker string
}

// Binary returns the binary of Leasehold, built on the first call.
func Binary(tb testing.TB) string {
	tb.Helper()
	return once(tb, &binaries.server, os.Getenv("LEASEHOLD_BINARY"), "leasehold", filepath.Join("..", ".."), "./cmd/leasehold")
}

func workerBinary(tb testing.TB) string {
	tb.Helper()
	return once(tb, &binaries.worker, "", "live-worker", ".", "./live/worker")
}

// once builds a package of the module at a path below this one into a place
// that Clean removes.
func once(tb testing.TB, built *string, given, name, module, pkg string) string {
	tb.Helper()
	binaries.mu.Lock()
	defer binaries.mu.Unlock()
	switch {
	case given != "":
		return given
	case *built != "":
		return *built
	}
	dir, err := os.MkdirTemp("", "leasehold-live")
	if err != nil {
		tb.Fatal(err)
	}
	cmd := exec.Command("go", "build", "-o", filepath.Join(dir, name), pkg)
	cmd.Dir = filepath.Join(moduleDir(), module)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=")
	if out, err := cmd.CombinedOutput(); err != nil {
		tb.Fatal(fmt.Errorf("build %s: %w\n%s", name, err, out))
	}
	*built = filepath.Join(dir, name)
	return *built
}

// Clean removes what was built. Call it at the end of TestMain.
func Clean() {
	binaries.mu.Lock()
	defer binaries.mu.Unlock()
	for _, path := range []*string{&binaries.server, &binaries.worker} {
		if *path != "" {
			_ = os.RemoveAll(filepath.Dir(*path))
		}
		*path = ""
	}
}

// moduleDir is where this module's go.mod is.
func moduleDir() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Dir(filepath.Dir(file))
}
