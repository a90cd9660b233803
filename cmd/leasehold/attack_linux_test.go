package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/leasehold-dev/leasehold/cmd/leasehold/internal/attack"
	"github.com/leasehold-dev/leasehold/cmd/leasehold/internal/latency"
	"github.com/leasehold-dev/leasehold/ownership/client"
	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"github.com/leasehold-dev/leasehold/ownership/pki"
	"github.com/leasehold-dev/leasehold/raftstore/access"
)

// Figures that an attack is held to.
const (
	attackMemory = 768 << 20 // bytes that a server may grow by
	attackSlower = 2.0       // times the p99 of keep-alives in calm, in a long run
	attackFine   = 50.0      // ms; a p99 below that is good enough whatever it was in calm
)

// Attacks, one after the other. The servers, the workers and the attackers share the
// machine: with everything at once it is the processors that are short, and so the
// time of keep-alives is held to its limit in the first.
var attacks = []struct {
	name  string
	kinds []string
	timed bool
}{
	{"silence, resets and garbage", []string{"half-open", "slow headers", "resets of nobody", "resets of a reader", "resets over HTTP", "packets", "bytes"}, true},
	{"everything at once", nil, false},
}

// attackTime is how long, and whether times are judged: in a test run they are the
// machine's affair.
func attackTime(t *testing.T) (time.Duration, bool) {
	t.Helper()
	v := os.Getenv("LEASEHOLD_ATTACK")
	if v == "" {
		return 4 * time.Second, false
	}
	d, err := time.ParseDuration(v)
	if err != nil {
		t.Fatalf("LEASEHOLD_ATTACK %q: want a duration, for example 30s", v)
	}
	return d, true
}

// Three servers as they are when nobody has changed a limit, workers that keep their
// sessions alive, and somebody at every port who wants them not to. No session
// expires, the leader stays, and when it is over nothing is left of it.
func TestAttacksTakeNoSession(t *testing.T) {
	took, judged := attackTime(t)
	f := newFortress(t, 3, "LEASEHOLD_LOG_LEVEL=warn")
	f.want(exitOK, "keyspace", "create", "jobs", "--partitions", "6", "--ttl", "10s", "--initial-delay", "0s")
	f.want(exitOK, "keyspace", "create", "idle", "--partitions", "1", "--ttl", "10s", "--initial-delay", "0s")
	work := `touch "` + f.dir + `/at-$LEASEHOLD_OWNER.$LEASEHOLD_PARTITION"; exec sleep 300`
	var workers []*program
	for _, id := range []string{"w1", "w2"} {
		workers = append(workers, f.sidecar(id, work, certificate(f.issue(access.Worker, id))...))
		f.owns(id, 1)
	}
	waitFor(t, "all partitions to be worked on", func() bool {
		files, err := filepath.Glob(filepath.Join(f.dir, "at-*"))
		return err == nil && len(files) >= 6
	})
	kept, stop := keep(t, f, f.issue(access.Worker, "keeper"), "keeper", "idle", 200)
	events := f.follow()
	leader := f.term()
	gauges := watchGauges(t, f)

	calm := took / 3
	before, n := kept.during(func() { pass(t.Context(), calm) })
	t.Logf("in calm: %v of %d keep-alives", times(before), n)
	gauges.mark()
	for _, a := range attacks {
		var report attack.Report
		arrivals := newcomers(t, f)
		attacked, n := kept.during(func() {
			ctx, cancel := context.WithTimeout(t.Context(), took)
			defer cancel()
			report = attack.Run(ctx, f.attacker(a.kinds...))
		})
		came, refused := arrivals()
		t.Logf("%s: %v of %d keep-alives; %d newcomers were let in, %d were not", a.name, times(attacked), n, came, refused)
		if came == 0 {
			t.Errorf("%s: nobody new was let in while it lasted", a.name)
		}
		if len(a.kinds) > 0 && len(report) != len(a.kinds) {
			t.Errorf("%s: made %q, and was to make %q", a.name, report.Names(), a.kinds)
		}
		for _, name := range report.Names() {
			c := report[name]
			t.Logf("  %-29s %6d connections, %5d not let in, %7d sent", name, c.Connections, c.Failed, c.Sent)
			if c.Connections == 0 && c.Failed == 0 {
				t.Errorf("nobody made %s", name)
			}
		}
		gauges.settled()
		after, n := kept.during(func() { pass(t.Context(), calm) })
		t.Logf("afterwards: %v of %d keep-alives", times(after), n)
		base := (before.P99 + after.P99) / 2
		t.Logf("p99 under attack is %.1f times that in calm", attacked.P99/base)
		if judged && a.timed && attacked.P99 > attackFine && attacked.P99 > attackSlower*base {
			t.Errorf("%s: p99 %.2f ms under attack, %.2f ms in calm", a.name, attacked.P99, base)
		}
		before = after
	}
	if lost := kept.lost(); len(lost) > 0 {
		t.Errorf("%d of 200 streams have ended, for example %s", len(lost), lost[0])
	}
	if now := f.term(); now != leader {
		t.Errorf("leader and term were %s, and are %s", leader, now)
	}
	for _, e := range events() {
		t.Errorf("event %s of %s %s, cause %q", e.GetKind(), e.GetKeyspace(), e.GetWorker(), e.GetCause())
	}
	for i, w := range workers {
		if said := w.stderr.String(); strings.Contains(said, "expired") || w.cmd.ProcessState != nil {
			t.Errorf("worker %d lost its lease or has ended:\n%s", i, said)
		}
	}
	gauges.judge()
	stop()
}

func times(s latency.Summary) string {
	return fmt.Sprintf("p50 %.2f ms, p99 %.2f ms, longest %.2f ms", s.P50, s.P99, s.Max)
}

// pass lets time pass, of which something is measured.
func pass(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// term is who leads, and for which time.
func (f *fortress) term() string {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.t.Context(), time.Minute)
	defer cancel()
	leader, err := f.Leader(ctx)
	if err != nil {
		f.t.Fatal(err)
	}
	return fmt.Sprintf("%s in term %d", leader.ID, f.status(leader).GetTerm())
}

// follow begins to look for what takes something from a worker, and returns what
// has been found.
func (f *fortress) follow() func() []*leaseholdv1.Event {
	f.t.Helper()
	cfg, err := pki.Client(f.operator)
	if err != nil {
		f.t.Fatal(err)
	}
	c, err := client.Dial(f.t.Context(), client.Config{Servers: f.Addrs(), TLS: cfg})
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { c.Close() })
	list := func() *leaseholdv1.ListEventsResponse {
		f.t.Helper()
		r, err := c.Events().ListEvents(f.t.Context(), &leaseholdv1.ListEventsRequest{})
		if err != nil {
			f.t.Fatal(err)
		}
		return r
	}
	from := list().GetRevision()
	return func() (found []*leaseholdv1.Event) {
		for _, e := range list().GetItems() {
			if e.GetRevision() > from {
				found = append(found, e)
			}
		}
		return found
	}
}

// attacker comes from 39 addresses, none of them that of the workers, and makes some
// kinds of trouble, or all.
func (f *fortress) attacker(kinds ...string) attack.Config {
	f.t.Helper()
	pair := func(role access.Role, name string) tls.Certificate {
		files := f.issue(role, name)
		c, err := tls.LoadX509KeyPair(files.Cert, files.Key)
		if err != nil {
			f.t.Fatal(err)
		}
		return c
	}
	cfg := attack.Config{Reader: pair(access.Reader, "nosy"), Worker: pair(access.Worker, "rogue"), Label: "leasehold", HalfOpen: 5000, Kinds: kinds}
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		f.t.Fatal(err)
	}
	// Package os has raised the soft limit to the hard one. A third is for the rest.
	if most := int(limit.Cur / 3 * 2); most < cfg.HalfOpen {
		f.t.Logf("this process may open %d files: %d half-open connections instead of %d", limit.Cur, most, cfg.HalfOpen)
		cfg.HalfOpen = most
	}
	for last := byte(2); last <= 40; last++ {
		cfg.Sources = append(cfg.Sources, net.IPv4(127, 0, 0, last))
	}
	for _, s := range f.Servers() {
		cfg.Targets = append(cfg.Targets, attack.Target{GRPC: s.GRPCAddr, HTTP: s.HTTPAddr, Raft: s.RaftAddr, Gossip: s.GossipAddr})
	}
	return cfg
}

// newcomers connect to one server after the other until they are counted, and ask
// whether it is well.
func newcomers(t *testing.T, f *fortress) (count func() (came, refused int)) {
	t.Helper()
	cfg, err := pki.Client(pki.Files{CA: f.security.CA()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	var came, refused int
	wg.Go(func() {
		servers := f.Servers()
		for i := 0; ctx.Err() == nil; i++ {
			conn, err := grpc.NewClient(servers[i%len(servers)].GRPCAddr, grpc.WithTransportCredentials(credentials.NewTLS(cfg)))
			if err != nil {
				t.Error(err)
				return
			}
			asking, enough := context.WithTimeout(ctx, 2*time.Second)
			_, err = healthpb.NewHealthClient(conn).Check(asking, &healthpb.HealthCheckRequest{})
			enough()
			_ = conn.Close()
			switch {
			case ctx.Err() != nil:
			case err != nil:
				refused++
			default:
				came++
			}
			pass(ctx, 100*time.Millisecond)
		}
	})
	return func() (int, int) {
		cancel()
		wg.Wait()
		return came, refused
	}
}
