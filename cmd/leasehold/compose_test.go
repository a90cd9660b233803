package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-dev/leasehold/cmd/leasehold/internal/demo"
)

// composition is the cluster of deploy/compose, in containers of its own image
// and under a project name of its own.
type composition struct {
	t       *testing.T
	compose []string // docker-compose or docker compose
	project string
	ledger  string // the directory that the workers share
	record  *demo.Recorder
}

// lacking ends a test that needs something of the machine: skipped elsewhere,
// failed in CI.
func lacking(t *testing.T, format string, args ...any) {
	t.Helper()
	if os.Getenv("LEASEHOLD_CI") == "1" {
		t.Fatalf(format, args...)
	}
	t.Skipf(format, args...)
}

func newComposition(t *testing.T) *composition {
	t.Helper()
	if out, err := exec.Command("docker", "info", "--format", "{{.ServerVersion}}").CombinedOutput(); err != nil {
		lacking(t, "no Docker Engine: %v: %s", err, out)
	}
	c := &composition{t: t, project: fmt.Sprintf("leasehold-test-%d", os.Getpid())}
	for _, cmd := range [][]string{{"docker-compose"}, {"docker", "compose"}} {
		if exec.Command(cmd[0], append(cmd[1:], "version")...).Run() == nil {
			c.compose = cmd
		}
	}
	if c.compose == nil {
		lacking(t, "neither docker-compose nor docker compose is there")
	}
	c.build()
	c.buildPrometheus()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o777); err != nil { // the containers run as nobody in particular
		t.Fatal(err)
	}
	c.ledger = filepath.Join(dir, "ledger")
	if err := os.Mkdir(c.ledger, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(c.ledger, 0o777); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.docker("rmi", "-f", c.image(), c.prometheus()) })
	t.Cleanup(func() { c.up("down", "-v", "-t", "5", "--remove-orphans") })
	c.up("up", "-d")
	return c
}

func (c *composition) image() string { return "leasehold:" + c.project }

// build makes the image as `make image` does, apart from the tree.
func (c *composition) build() {
	c.t.Helper()
	dir := filepath.Join(c.t.TempDir(), "bin", "image")
	for _, d := range []string{"data", "ledger"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			c.t.Fatal(err)
		}
	}
	if err := os.Link(buildBinary(c.t), filepath.Join(dir, "leasehold")); err != nil {
		c.t.Fatal(err)
	}
	c.docker("build", "-q", "-t", c.image(), "-f", filepath.Join(root(c.t), "Dockerfile"), filepath.Dir(filepath.Dir(dir)))
}

func (c *composition) prometheus() string { return "prometheus:" + c.project }

// buildPrometheus puts this machine's Prometheus and what it is linked to into
// an image like the one that the file names, which may not be at hand.
func (c *composition) buildPrometheus() {
	c.t.Helper()
	program, err := exec.LookPath("prometheus")
	if err != nil {
		lacking(c.t, "no prometheus: %v", err)
	}
	files := []string{program}
	if out, err := exec.Command("ldd", program).Output(); err == nil { // fails for a static one
		files = append(files, regexp.MustCompile(`/\S+`).FindAllString(string(out), -1)...)
	}
	dir := c.t.TempDir()
	dockerfile := "FROM scratch\nCOPY --chown=65534:65534 data /prometheus\n"
	if err := os.Mkdir(filepath.Join(dir, "data"), 0o755); err != nil {
		c.t.Fatal(err)
	}
	for i, file := range files {
		name := strconv.Itoa(i)
		raw, err := os.ReadFile(file)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), raw, 0o755)
		}
		if err != nil {
			c.t.Fatal(err)
		}
		dockerfile += "COPY " + name + " " + file + "\n"
	}
	dockerfile += "USER 65534:65534\nVOLUME [\"/prometheus\"]\nENTRYPOINT [\"" + program + "\"]\n"
	if err := os.WriteFile(filepath.Join(dir, "Dockerfile"), []byte(dockerfile), 0o644); err != nil {
		c.t.Fatal(err)
	}
	c.docker("build", "-q", "-t", c.prometheus(), dir)
}

// figures are what its Prometheus says.
func (c *composition) figures() *promServer {
	return &promServer{c.t, "http://" + strings.TrimSpace(c.up("port", "prometheus", "9090"))}
}

func (c *composition) command(env []string, name string, args ...string) string {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), env...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		c.t.Fatalf("%s %s: %v\n%s%s", name, strings.Join(args, " "), err, stdout.String(), stderr.String())
	}
	return stdout.String()
}

func (c *composition) docker(args ...string) string { return c.command(nil, "docker", args...) }

func (c *composition) up(args ...string) string {
	c.t.Helper()
	all := append(append([]string{}, c.compose[1:]...), "-p", c.project, "-f", filepath.Join(root(c.t), "deploy/compose/compose.yaml"))
	return c.command([]string{
		"LEASEHOLD_IMAGE=" + c.image(), "LEASEHOLD_PROMETHEUS_IMAGE=" + c.prometheus(), "LEASEHOLD_LEDGER=" + c.ledger,
		"LEASEHOLD_GRPC_PORT=0", "LEASEHOLD_HTTP_PORT=0", "LEASEHOLD_PROMETHEUS_PORT=0",
	}, c.compose[0], append(all, args...)...)
}

// container is the id of a service's container.
func (c *composition) container(service string) string {
	return strings.TrimSpace(c.up("ps", "-q", service))
}

func (c *composition) network() string { return c.project + "_cluster" }

// ask runs the program in a server's container. It fails with the container.
func (c *composition) ask(service string, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, "docker", append([]string{"exec", c.container(service), "/leasehold"}, args...)...)
	return cmd.Output()
}

type clusterStatus struct {
	LeaderID  string `json:"leader_id"`
	Keyspaces []struct {
		Name    string `json:"name"`
		Owned   int    `json:"owned,string"`
		Unowned int    `json:"unowned,string"`
	} `json:"keyspaces"`
	Workers int `json:"workers,string"`
}

// waitFor polls the status that one server gives.
func (c *composition) waitFor(service, what string, ok func(clusterStatus) bool) (last clusterStatus) {
	c.t.Helper()
	var out []byte
	var err error
	for limit := time.Now().Add(3 * time.Minute); time.Now().Before(limit); <-time.After(200 * time.Millisecond) {
		if out, err = c.ask(service, "status", "--timeout", "2s", "-o", "json"); err != nil {
			continue
		}
		last = clusterStatus{}
		if err = json.Unmarshal(out, &last); err == nil && last.LeaderID != "" && ok(last) {
			return last
		}
	}
	c.t.Fatalf("not within three minutes, says %s: %s: %v\n%s\n%s", service, what, err, out, c.up("logs", "--tail", "20", "--no-color"))
	return last
}

func owned(s clusterStatus) bool {
	return len(s.Keyspaces) == 1 && s.Keyspaces[0].Owned > 0 && s.Keyspaces[0].Unowned == 0
}

// process names a worker's present process in the evidence.
func (c *composition) process(id string) string {
	files, err := filepath.Glob(filepath.Join(c.ledger, "evidence", id+".*.jsonl"))
	if err != nil || len(files) == 0 {
		c.t.Fatalf("no evidence of %s: %v", id, err)
	}
	return id + "." + strconv.Itoa(len(files))
}

func (c *composition) note(kind demo.Kind, process string) {
	id, _, _ := strings.Cut(process, ".")
	c.record.Write(demo.Record{Kind: kind, Process: process, Worker: id})
}

// TestComposeSurvivesLostContainers brings deploy/compose up, kills, pauses and
// disconnects containers, and holds the ledger against the orders. Prometheus
// sees everybody before and after.
func TestComposeSurvivesLostContainers(t *testing.T) {
	t.Parallel()
	c := newComposition(t)
	all := func(s clusterStatus) bool { return owned(s) && s.Workers == 3 }
	c.waitFor("s1", "three workers own all partitions", all)
	prom, seen := c.figures(), map[string]int{"leasehold-server": 3, "leasehold-worker": 3}
	prom.until("all targets are up", func() error { return prom.targetsUp(seen) })
	prom.until("the rules work", prom.rulesWork)
	var err error
	c.record, err = demo.NewRecorder(filepath.Join(c.ledger, "evidence"), demo.DriverProcess, demo.DriverProcess, nil)
	if err != nil {
		t.Fatal(err)
	}

	t.Log("kill a worker's container")
	w1 := c.process("w1")
	c.note(demo.KindKill, w1)
	c.docker("kill", c.container("w1"))
	c.note(demo.KindDead, w1)
	c.waitFor("s1", "the others own all", func(s clusterStatus) bool { return owned(s) && s.Workers == 2 })
	c.docker("start", c.container("w1"))
	c.waitFor("s1", "w1 is back", all)

	t.Log("pause a worker's container past its TTL")
	w2 := c.process("w2")
	c.note(demo.KindStop, w2)
	c.docker("pause", c.container("w2"))
	c.waitFor("s1", "the others own all", func(s clusterStatus) bool { return owned(s) && s.Workers == 2 })
	c.docker("unpause", c.container("w2"))
	c.note(demo.KindContinue, w2)
	c.waitFor("s1", "w2 is back", all)

	t.Log("cut a worker's container off")
	w3 := c.container("w3")
	c.docker("network", "disconnect", c.network(), w3)
	c.waitFor("s1", "the others own all", func(s clusterStatus) bool { return owned(s) && s.Workers == 2 })
	c.docker("network", "connect", "--alias", "w3", c.network(), w3)
	c.waitFor("s1", "w3 is back", all)

	for _, how := range []struct {
		what       string
		hurt, heal func(service, container string)
	}{
		{"kill", func(_, id string) { c.docker("kill", id) }, func(_, id string) { c.docker("start", id) }},
		{"pause", func(_, id string) { c.docker("pause", id) }, func(_, id string) { c.docker("unpause", id) }},
		{
			"cut off", func(_, id string) { c.docker("network", "disconnect", c.network(), id) },
			func(s, id string) { c.docker("network", "connect", "--alias", s, c.network(), id) },
		},
	} {
		leader := c.waitFor("s1", "there is a leader", all).LeaderID
		t.Logf("%s the leader's container, %s", how.what, leader)
		other := map[string]string{"s1": "s2", "s2": "s3", "s3": "s1"}[leader]
		id := c.container(leader)
		how.hurt(leader, id)
		c.waitFor(other, "another server leads and nothing is lost", func(s clusterStatus) bool { return s.LeaderID != leader && all(s) })
		how.heal(leader, id)
		c.waitFor(leader, leader+" is back", all)
	}
	prom.until("all targets are up again", func() error { return prom.targetsUp(seen) })
	prom.until("it has seen partitions move", func() error { return prom.has("sum(increase(leasehold_partition_moves_total[10m])) > 0") })
	c.judge()
}

// judge ends the stream and wants it whole.
func (c *composition) judge() {
	t := c.t
	t.Helper()
	if err := c.record.Close(); err != nil {
		t.Fatal(err)
	}
	s, err := demo.ReadStanding(c.ledger)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	last, err := s.End(ctx)
	if err != nil {
		t.Fatal(err)
	}
	found, err := s.Judge(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("last order %d of each partition: %+v", last, found)
	for _, p := range found.Problems {
		t.Error(p)
	}
	if found.IntervalsChecked < 100 || found.OrdersWritten < 1000 {
		t.Errorf("%d contexts and %d orders are too few to prove anything", found.IntervalsChecked, found.OrdersWritten)
	}
}
