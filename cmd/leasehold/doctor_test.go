package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/leasehold-dev/leasehold/cmd/leasehold/internal/cluster"
	"github.com/leasehold-dev/leasehold/ownership/bootclock"
	"github.com/leasehold-dev/leasehold/ownership/fence"
	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"github.com/leasehold-dev/leasehold/ownership/server"
	"github.com/leasehold-dev/leasehold/ownership/worker"
	"github.com/leasehold-dev/leasehold/raftstore"
)

// processGroup ends the processes that are in it with the test.
func processGroup(t *testing.T) *cluster.Group {
	t.Helper()
	g, err := cluster.NewGroup()
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

// specs are those of n servers that are this binary, with more variables.
func specs(n int, env ...string) []cluster.ServerSpec {
	all := cluster.Specs(n)
	for i := range all {
		all[i].Env = append([]string{asProgramEnv + "=1"}, env...)
	}
	return all
}

// processes starts n servers, each a process of its own, until the test ends.
func processes(t *testing.T, n int) *cluster.Cluster {
	t.Helper()
	c, err := cluster.StartServers(processGroup(t), t.TempDir(), specs(n))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := c.WaitReady(ctx); err != nil {
		t.Fatal(err)
	}
	return c
}

// findings runs doctor and returns its exit code and what it found.
func findings(t *testing.T, servers string, args ...string) (code int, found []*leaseholdv1.Finding, text string) {
	t.Helper()
	c := &cli{env: map[string]string{"LEASEHOLD_SERVER": servers}}
	code = c.run(t, append([]string{"doctor", "-o", "json"}, args...)...)
	var list struct{ Items []*leaseholdv1.Finding }
	if err := json.Unmarshal([]byte(c.stdout.String()), &list); err != nil {
		t.Fatalf("doctor: %v\n%s%s", err, c.stdout.String(), c.stderr.String())
	}
	return code, list.Items, c.stdout.String()
}

// finding of a code, or nil.
func finding(found []*leaseholdv1.Finding, code string) *leaseholdv1.Finding {
	i := slices.IndexFunc(found, func(f *leaseholdv1.Finding) bool { return f.GetCode() == code })
	if i < 0 {
		return nil
	}
	return found[i]
}

// untilFound asks doctor again and again: what it says of a fault comes when gossip
// or the leader has noticed.
func untilFound(t *testing.T, servers, what string, ok func(code int, found []*leaseholdv1.Finding) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	last := ""
	err := poll(ctx, 100*time.Millisecond, func() (bool, error) {
		code, found, text := findings(t, servers, "--duration", "200ms", "--timeout", "2s")
		last = text
		return ok(code, found), nil
	})
	if err != nil {
		t.Fatalf("doctor never said %s, last:\n%s", what, last)
	}
}

// nothingWrong tells whether only notices were found, apart from what is true
// of a busy machine and says nothing of the cluster.
func nothingWrong(code int, found []*leaseholdv1.Finding) bool {
	want := exitOK
	for _, f := range found {
		switch {
		case slices.Contains([]string{"slow_fsync", "disk_filling", "open_files"}, f.GetCode()) && f.GetSeverity() != "notice":
			want = exitFailed
		case f.GetSeverity() != "notice":
			return false
		}
	}
	return code == want
}

// guardedWorker holds what it is given, claims each token at a resource in
// memory and gossips.
func guardedWorker(t *testing.T, servers, id, keyspace string, change func(*worker.Config)) {
	t.Helper()
	cfg := worker.Config{Servers: servers, ID: id, Logger: slog.New(slog.DiscardHandler), Version: "1.2.3"}
	if change != nil {
		change(&cfg)
	}
	w, err := worker.Join(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- w.Run(ctx, keyspace, func(ctx context.Context, l *worker.Lease) error {
			select {
			case <-l.Draining():
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}, worker.Claim(fence.NewMemory(nil)))
	}()
	t.Cleanup(func() {
		cancel()
		<-done // its error is that of servers which have been killed
	})
}

// On real processes: nothing to say of a healthy cluster; a
// stopped server and a dead one are named with the command to run; without a
// quorum and with nobody at all it still says what it can.
func TestDoctorOnRealProcesses(t *testing.T) {
	t.Parallel()
	c := processes(t, 3)
	servers := c.Addrs()
	cl := &cli{env: map[string]string{"LEASEHOLD_SERVER": servers}}
	cl.want(t, exitOK, "keyspace", "create", "orders", "--partitions", "12", "--initial-delay", "0s")
	guardedWorker(t, servers, "w1", "orders", nil)
	guardedWorker(t, servers, "w2", "orders", nil)
	eventually(t, servers, "OK - 0 partitions", "check", "unowned", "--keyspace", "orders")
	untilFound(t, servers, "nothing", func(code int, found []*leaseholdv1.Finding) bool {
		return nothingWrong(code, found)
	})
	check := func(want int, says string, args ...string) {
		t.Helper()
		// One answer may come late, as on a busy machine a keep-alive may.
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		code, out := 0, ""
		err := poll(ctx, 100*time.Millisecond, func() (bool, error) {
			c := &cli{env: map[string]string{"LEASEHOLD_SERVER": servers}}
			code = c.run(t, append([]string{"check", "--timeout", "3s"}, args...)...)
			out = c.stdout.String()
			return code == want && strings.Contains(out, says), nil
		})
		if err != nil || strings.Count(out, "\n") != 1 {
			t.Errorf("check %v: exit %d, want %d: %s", args, code, want, out)
		}
	}
	check(0, "3 of 3 voters up", "quorum")
	check(0, "2 workers renew", "lease")
	check(0, "servers see one another", "gossip")
	check(0, "give or take", "clock", "--duration", "500ms")

	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	leader, err := c.Leader(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var followers []*cluster.Server
	for _, s := range c.Servers() {
		if s != leader {
			followers = append(followers, s)
		}
	}
	stopped, dead := followers[0], followers[1]

	// Stopped: its sockets are there, nothing answers.
	if err := stopped.Process().Stop(ctx); err != nil {
		t.Fatal(err)
	}
	untilFound(t, servers, stopped.ID+" is silent", func(code int, found []*leaseholdv1.Finding) bool {
		for _, word := range []string{"server_silent", "server_dead"} {
			if f := finding(found, word); f.GetSubject() == "server "+stopped.ID && strings.Contains(f.GetNext(), "leasehold raft remove "+stopped.ID) {
				return code == exitFailed && finding(found, "quorum_at_risk") != nil
			}
		}
		return false
	})
	check(1, "2 of 3 voters up", "quorum")
	check(0, "2 of 3 voters up", "quorum", "--warning", "0")
	if err := stopped.Process().Continue(); err != nil {
		t.Fatal(err)
	}
	untilFound(t, servers, "that it is back", nothingWrong)

	if err := c.Kill(dead); err != nil {
		t.Fatal(err)
	}
	untilFound(t, servers, dead.ID+" is dead", func(code int, found []*leaseholdv1.Finding) bool {
		f := finding(found, "server_dead")
		return code == exitFailed && f.GetSubject() == "server "+dead.ID && strings.Contains(f.GetNext(), "leasehold raft remove "+dead.ID)
	})
	if err := c.Kill(stopped); err != nil {
		t.Fatal(err)
	}
	untilFound(t, servers, "that the quorum is lost", func(code int, found []*leaseholdv1.Finding) bool {
		return code == exitFailed && finding(found, "quorum_lost") != nil && finding(found, "no_leader") != nil
	})
	check(2, "no leader, 1 of 3 voters up", "quorum")
	if err := c.Kill(leader); err != nil {
		t.Fatal(err)
	}
	code, found, _ := findings(t, servers, "--duration", "0s")
	if code != exitUnreachable || len(found) != 3 {
		t.Errorf("nobody answers: exit %d, %v", code, found)
	}
	check(2, "no server answers", "quorum")
	check(3, "no server answers", "disk")
}

// A mistake must not look like a critical cluster: 2, which mistakes end with
// elsewhere, is CRITICAL to a monitoring system.
func TestCheckMistakesAreUnknown(t *testing.T) {
	for _, c := range []struct {
		args string
		env  map[string]string
	}{
		{"check nothing", nil},
		{"check disk --warning much", nil},
		{"check disk --cold", nil},
		{"check quorum now", nil},
		{"check quorum --server 10.0.0.1:port", nil},
		{"check quorum", map[string]string{"LEASEHOLD_TIMEOUT": "10"}},
		{"check backup --warning 26", nil},
		{"check disk", map[string]string{"LEASEHOLD_SERVER": "127.0.0.1:1"}},
	} {
		cmd := &cli{env: c.env}
		out, errOut := cmd.want(t, 3, strings.Fields(c.args)...)
		if !strings.HasPrefix(out, "UNKNOWN - ") || strings.Count(out, "\n") != 1 || errOut != "" {
			t.Errorf("%s: %q, %q", c.args, out, errOut)
		}
	}
	cmd := &cli{env: map[string]string{"LEASEHOLD_SERVER": "127.0.0.1:1"}}
	if out, _ := cmd.want(t, 2, "check"); !strings.HasPrefix(out, "CRITICAL - quorum: no server answers; ") {
		t.Error(out)
	}
}

// fastClock runs at another rate.
type fastClock struct {
	real bootclock.Clock
	rate float64
}

func (c fastClock) Now() time.Duration { return time.Duration(float64(c.real.Now()) * c.rate) }

// inProcess starts three servers in this process and returns their addresses.
func inProcess(t *testing.T, change func(id string, c *server.Config)) string {
	t.Helper()
	var grpc []string
	ports, err := cluster.FreePorts(3)
	if err != nil {
		t.Fatal(err)
	}
	var join []string
	for _, p := range ports {
		join = append(join, fmt.Sprintf("127.0.0.1:%d", p))
	}
	for i, addr := range join {
		c := server.DevConfig()
		c.ID, c.Join, c.GossipAddr, c.BootstrapExpect = fmt.Sprintf("s%d", i+1), join, addr, len(join)
		c.GRPCAddr, c.RaftAddr, c.HTTPAddr = "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0"
		c.Logger, c.Version = slog.New(slog.DiscardHandler), "1.0.0"
		change(c.ID, &c)
		s, err := server.New(c)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- s.Run(ctx) }()
		t.Cleanup(func() {
			cancel()
			<-done
		})
		grpc = append(grpc, s.Addrs().GRPC)
	}
	eventually(t, grpc[0], "ready", "status", "--wait", "--timeout", "1m")
	return strings.Join(grpc, ",")
}

// DESIGN §2, promise 3: it holds as long as clock rates differ by less than
// 1 %. A server whose clock runs 5 % fast is named.
func TestDoctorSeesAClockThatRunsFast(t *testing.T) {
	t.Parallel()
	servers := inProcess(t, func(id string, c *server.Config) {
		if id == "s2" {
			c.Clock = fastClock{bootclock.Boot(), 1.05}
		}
	})
	// A busy machine answers late, and then the measurement is unsure: again.
	untilFound(t, servers, "that a clock is fast", func(code int, found []*leaseholdv1.Finding) bool {
		f := finding(found, "clock_rate")
		return code == exitFailed && f.GetSubject() == "server s2" && strings.Contains(f.GetEvidence(), "s2 runs")
	})
}

// slowDisk takes its time for each write of the log.
type slowDisk struct{ raftstore.LogStore }

func (d slowDisk) StoreLogs(logs []*raft.Log) error {
	<-time.After(150 * time.Millisecond)
	return d.LogStore.StoreLogs(logs)
}

// A disk that is slow to sync is named with its figures.
func TestDoctorSeesASlowDisk(t *testing.T) {
	t.Parallel()
	servers := inProcess(t, func(id string, c *server.Config) {
		c.DataDir = t.TempDir()
		if id == "s3" {
			c.WrapLog = func(s raftstore.LogStore) raftstore.LogStore { return slowDisk{s} }
		}
	})
	untilFound(t, servers, "that a disk is slow", func(_ int, found []*leaseholdv1.Finding) bool {
		return slices.ContainsFunc(found, func(f *leaseholdv1.Finding) bool {
			return f.GetCode() == "slow_fsync" && f.GetSubject() == "server s3" && strings.Contains(f.GetEvidence(), "election timeout 200ms")
		})
	})
	cmd := &cli{env: map[string]string{"LEASEHOLD_SERVER": servers}}
	if code := cmd.run(t, "check", "fsync", "--warning", "100ms", "--critical", "1m"); code != 1 || !strings.Contains(cmd.stdout.String(), "s3 p99 ") {
		t.Errorf("check fsync: exit %d, %s", code, cmd.stdout.String())
	}
}

// A worker that was stopped for less than its TTL keeps its leases; the servers
// hear how long it stood still, and doctor says that the TTL is short.
func TestStoppedWorkerTellsItsPause(t *testing.T) {
	t.Parallel()
	f := newField(t, 1, "--ttl", "9s")
	w := f.sidecar("w1", "sleep 300")
	f.owner(0, "w1")
	type shown struct {
		Token            string `json:"token"`
		LongestPauseMs   string `json:"longest_pause_ms"`
		SessionID, State string
	}
	first := func(args ...string) shown {
		t.Helper()
		out, _ := f.want(exitOK, append(args, "-o", "json")...)
		var list struct{ Items []shown }
		if err := json.Unmarshal([]byte(out), &list); err != nil || len(list.Items) != 1 {
			t.Fatalf("%v: %v in %s", args, err, out)
		}
		return list.Items[0]
	}
	before := first("partitions", "ls", f.keyspace)
	if err := w.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	<-time.After(3500 * time.Millisecond) // the pause itself, well below the TTL
	if err := w.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	f.until("the worker's word of its pause", func() bool {
		ms, err := strconv.Atoi(first("workers", "ls").LongestPauseMs)
		if ms > 10_000 {
			t.Errorf("it tells of a pause of %d ms", ms)
		}
		return err == nil && ms >= 3200
	})
	if after := first("partitions", "ls", f.keyspace); after.Token != before.Token {
		t.Errorf("the lease went from token %s to %s", before.Token, after.Token)
	}
	_, found, text := findings(t, f.server, "--duration", "100ms")
	if x := finding(found, "ttl_below_pauses"); x.GetSubject() != "keyspace "+f.keyspace || !strings.Contains(x.GetNext(), "leasehold keyspace set "+f.keyspace+" --ttl") {
		t.Errorf("doctor: %s", text)
	}
	if out, _ := f.want(exitOK, "workers", "ls", "-o", "wide"); !strings.Contains(out, "PAUSE") || !strings.Contains(out, "CHECKS") {
		t.Error(out)
	}
}
