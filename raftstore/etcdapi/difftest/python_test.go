package difftest

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// python of the system, to which Debian's packages belong.
const python = "/usr/bin/python3"

// TestPython runs the same script of python3-etcd3 on etcd and on each of
// three servers: what it prints must not differ.
func TestPython(t *testing.T) {
	need(t, "python3-etcd3", exec.CommandContext(t.Context(), python, "-c", "import etcd3").Run() == nil)
	e, err := StartEtcd(t.TempDir(), 1)
	must(t, err)
	t.Cleanup(e.Close)
	want := scenarios(t, e.Addrs[0])
	l := leasehold(t, 3, calm)
	waitServing(t, l.Addrs)
	for _, addr := range l.Addrs {
		if got := scenarios(t, addr); got != want {
			t.Errorf("the script printed at a server\n%s\nand at etcd\n%s", got, want)
		}
		_, err := client(t, addr).Delete(t.Context(), "py", clientv3.WithPrefix())
		must(t, err)
	}
}

func scenarios(t *testing.T, addr string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), python, filepath.Join("testdata", "scenarios.py"), addr)
	cmd.Env = append(os.Environ(), "PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION=python", "PYTHONDONTWRITEBYTECODE=1", "PYTHONWARNINGS=ignore")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("the script failed at %s: %v\n%s", addr, err, out)
	}
	return string(out)
}
