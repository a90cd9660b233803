package demo

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"

	"github.com/leasehold-dev/leasehold/cmd/leasehold/internal/cluster"
	"github.com/leasehold-dev/leasehold/deploy/prometheus"
)

// lookout is a directory that Prometheus can be started on, and where it will
// listen. The workers' metrics have a port for each id, over all restarts.
type lookout struct {
	dir     string
	listen  string
	workers map[string]string // id → address of its metrics
}

// target is one entry of a file that Prometheus finds its targets in.
type target struct {
	Targets []string          `json:"targets"`
	Labels  map[string]string `json:"labels"`
}

// newLookout writes what does not depend on the servers, and finds ports.
func newLookout(dir string, ids []string) (*lookout, error) {
	ports, err := cluster.FreePorts(len(ids) + 1)
	if err != nil {
		return nil, err
	}
	l := &lookout{dir: dir, listen: listenAddr(ports[len(ids)]), workers: map[string]string{}}
	for i, id := range ids {
		l.workers[id] = fmt.Sprintf("127.0.0.1:%d", ports[i])
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("create directory for Prometheus: %w", err)
	}
	return l, fs.WalkDir(prometheus.Files, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		raw, err := prometheus.Files.ReadFile(name)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(dir, name), raw, 0o600)
	})
}

// listenAddr is where people expect Prometheus, unless it is taken: the service
// of a package may run.
func listenAddr(other int) string {
	const usual = "127.0.0.1:9090"
	ln, err := net.Listen("tcp", usual)
	if err != nil {
		return fmt.Sprintf("127.0.0.1:%d", other)
	}
	_ = ln.Close() // it was only tried
	return usual
}

// showServers and showWorkers write the targets, which Prometheus notices while
// it runs.
func (l *lookout) showServers(servers []*cluster.Server) error {
	var all []target
	for _, s := range servers {
		all = append(all, targetOf(s.ID, s.HTTPAddr))
	}
	return l.write("servers.json", all)
}

func (l *lookout) showWorkers(ids []string) error {
	var all []target
	for _, id := range ids {
		all = append(all, targetOf(id, l.workers[id]))
	}
	return l.write("workers.json", all)
}

func targetOf(id, addr string) target {
	return target{[]string{addr}, map[string]string{"cluster": "demo", "instance": id}}
}

// write replaces a file: Prometheus must not read half of one.
func (l *lookout) write(name string, all []target) error {
	raw, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		return fmt.Errorf("encode targets: %w", err)
	}
	tmp := filepath.Join(l.dir, name+".tmp")
	if err := os.WriteFile(tmp, append(raw, '\n'), 0o600); err != nil {
		return fmt.Errorf("write targets: %w", err)
	}
	return os.Rename(tmp, filepath.Join(l.dir, name))
}

// command starts Prometheus.
func (l *lookout) command() string {
	return fmt.Sprintf("prometheus --config.file=%s --storage.tsdb.path=%s --web.listen-address=%s",
		filepath.Join(l.dir, "prometheus.yml"), filepath.Join(l.dir, "data"), l.listen)
}
