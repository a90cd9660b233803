package rules

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/leasehold-dev/leasehold/metrics/mixin/live"
)

func TestMain(m *testing.M) {
	code := m.Run()
	live.Clean()
	if err := goleak.Find(); code == 0 && err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// root of the repository.
const root = "../../.."

// folder of the files, from here.
var folder = filepath.Join(root, Folder)

// promtool runs the program and returns what it printed.
func promtool(t *testing.T, args ...string) (string, error) {
	t.Helper()
	out, err := exec.Command(live.Need(t, "promtool"), args...).CombinedOutput()
	return string(out), err
}
