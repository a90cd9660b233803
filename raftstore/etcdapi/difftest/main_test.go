package difftest

import (
	"flag"
	"fmt"
	"os"
	"strconv"
	"sync"
	"testing"
)

var (
	opsFlag  = flag.Int("ops", envInt("LEASEHOLD_DIFF_OPS", 200_000), "operations that the differential test compares")
	seedFlag = flag.Uint64("seed", 1, "of the workloads")
)

func envInt(name string, otherwise int) int {
	if n, err := strconv.Atoi(os.Getenv(name)); err == nil {
		return n
	}
	return otherwise
}

// scratch holds the binary.
var scratch string

func TestMain(m *testing.M) {
	flag.Parse()
	dir, err := os.MkdirTemp("", "difftest")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	scratch = dir
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

var buildOnce = sync.OnceValues(func() (string, error) {
	if path := os.Getenv("LEASEHOLD_BINARY"); path != "" {
		return path, nil
	}
	return Build(scratch)
})

// leasehold starts a cluster of the built binary for the test.
func leasehold(t *testing.T, servers int, flags ...string) *Leasehold {
	t.Helper()
	binary, err := buildOnce()
	if err != nil {
		t.Fatal(err)
	}
	l, err := StartLeasehold(binary, t.TempDir(), servers, flags...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		l.Close()
		if t.Failed() {
			for _, s := range l.Servers {
				t.Logf("the log of %s ends:\n%s", s.ID, s.Log())
			}
		}
	})
	return l
}

// calm is for clusters whose leader is to stay although the machine is busy and
// stands still for a moment.
const calm = "--election-timeout=2s"

func leaseholdSide(t *testing.T, servers int) *Side {
	t.Helper()
	s, err := Dial(t.Context(), "leasehold", leasehold(t, servers, calm).Addrs)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// need skips the test where a program is missing; CI does not.
func need(t *testing.T, what string, there bool) {
	t.Helper()
	switch {
	case there:
	case os.Getenv("LEASEHOLD_CI") != "":
		t.Fatalf("%s is missing, and LEASEHOLD_CI is set", what)
	default:
		t.Skipf("%s is missing", what)
	}
}
