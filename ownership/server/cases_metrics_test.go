package server

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	etcdpb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/leasehold-dev/leasehold/metrics"
	"github.com/leasehold-dev/leasehold/ownership/fence"
	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"github.com/leasehold-dev/leasehold/ownership/worker"
)

// scrape is a server's answer to Prometheus: each series with its value.
func (c *cluster) scrape(i int) map[string]float64 {
	c.t.Helper()
	series := map[string]float64{}
	for line := range strings.Lines(c.metrics(i)) {
		line = strings.TrimSpace(line)
		at := strings.LastIndexByte(line, ' ')
		if line == "" || line[0] == '#' || at < 0 {
			continue
		}
		v, err := strconv.ParseFloat(line[at+1:], 64)
		if err != nil {
			c.t.Fatalf("%q: %v", line, err)
		}
		series[line[:at]] = v
	}
	return series
}

// O-83: labels do not explode. What users make, and they make much, adds series
// for keyspaces only; the whole scrape stays small and fast.
func TestSeriesOfAScrapeAreBounded(t *testing.T) {
	t.Parallel()
	c := quickCluster(t, 1)
	cl := c.client()
	own := func(series map[string]float64) (n int) {
		for name := range series {
			if strings.HasPrefix(name, "leasehold_") {
				n++
			}
		}
		return n
	}
	if n := own(c.scrape(0)); n != metrics.ServerSeries(0) {
		t.Errorf("a fresh server has %d series of its own, the formula says %d", n, metrics.ServerSeries(0))
	}
	names := []string{"orders", "customers", "invoices", "stock"}
	for _, name := range names {
		createKeyspace(t, cl, name, 250, 5*time.Second, leaseholdv1.Takeover_TAKEOVER_FENCED)
	}
	conn, err := grpc.NewClient(c.running[0].Addrs().GRPC, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	// A hundred workers at a time, and five times as many in all.
	for generation := range 5 {
		for i := range 100 {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			stream, err := leaseholdv1.NewSessionServiceClient(conn).Attach(ctx)
			if err != nil {
				t.Fatal(err)
			}
			id := uint64(1000*generation + i + 1)
			err = stream.Send(&leaseholdv1.AttachRequest{Request: &leaseholdv1.AttachRequest_Open{Open: &leaseholdv1.OpenSession{
				SessionId: id, WorkerId: fmt.Sprintf("gen%d-worker%d", generation, i), Keyspaces: names,
			}}})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := stream.Recv(); err != nil {
				t.Fatal(err)
			}
			if err := stream.Send(&leaseholdv1.AttachRequest{Request: &leaseholdv1.AttachRequest_KeepAlive{KeepAlive: &leaseholdv1.KeepAliveRequest{
				SessionId: id, Seq: 1, FencingRejections: 1,
			}}}); err != nil {
				t.Fatal(err)
			}
			if generation == 4 {
				keepAlive(ctx, t, stream, id)
			} else {
				if err := stream.Send(&leaseholdv1.AttachRequest{Request: &leaseholdv1.AttachRequest_Leave{Leave: &leaseholdv1.LeaveSession{}}}); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	kv, leases, locks := etcdpb.NewKVClient(conn), etcdpb.NewLeaseClient(conn), leaseholdv1.NewCoordinationServiceClient(conn)
	const many = 5000
	var users errgroup.Group
	users.SetLimit(64)
	for i := range many {
		users.Go(func() error {
			_, err := kv.Put(t.Context(), &etcdpb.PutRequest{Key: fmt.Appendf(nil, "settings/key%d", i), Value: []byte("x")})
			return err
		})
		users.Go(func() error {
			_, err := locks.Acquire(t.Context(), &leaseholdv1.AcquireRequest{Name: fmt.Sprintf("lock%d", i), SessionId: 4001})
			return err
		})
		for range 2 { // sessions without a worker
			users.Go(func() error {
				_, err := leases.LeaseGrant(t.Context(), &etcdpb.LeaseGrantRequest{TTL: 600})
				return err
			})
		}
	}
	if err := users.Wait(); err != nil {
		t.Fatal(err)
	}
	// The figures of the state come with the next look at it.
	var after map[string]float64
	eventually(t, 20*time.Second, "all partitions are owned", func() bool {
		after = c.scrape(0)
		owned := 0.0
		for _, name := range names {
			owned += after[`leasehold_partitions{keyspace="`+name+`",state="owned"}`]
		}
		return owned == 1000
	})
	if after[`leasehold_connections{listener="grpc"}`] < 1 || after[`leasehold_connections{listener="http"}`] < 1 {
		t.Error("connections are not counted")
	}
	conn.Close()
	cl.Close()
	eventually(t, 10*time.Second, "no connection of a client's is left", func() bool { return c.scrape(0)[`leasehold_connections{listener="grpc"}`] == 0 })
	var body string
	took := time.Hour // of the quickest: a busy machine has others to serve
	for range 5 {
		began := time.Now()
		body = c.metrics(0)
		took = min(took, time.Since(began))
	}
	t.Logf("%d series, %d of them our own, %d bytes in %v", len(after), own(after), len(body), took)
	if n := own(after); n != metrics.ServerSeries(len(names)) {
		t.Errorf("%d series of its own, the formula says %d", n, metrics.ServerSeries(len(names)))
	}
	if len(after) > 600 || len(body) > 5<<20 || took > time.Second {
		t.Errorf("a scrape has %d series and %d bytes and took %v; 600, 5 MB and 1 s are promised", len(after), len(body), took)
	}
	for name := range after {
		for _, of := range []string{"gen0", "worker1", "lock1", "key1", "127.0.0.1", "4001", "settings"} {
			if strings.Contains(name, of) {
				t.Errorf("a label tells of what a user made: %s", name)
			}
		}
	}
	if after["leasehold_rpc_requests_total{api=\"native\",call=\"coordination\",outcome=\"ok\"}"] < many ||
		after["leasehold_rpc_requests_total{api=\"etcd\",call=\"put\",outcome=\"ok\"}"] < many {
		t.Error("calls were not counted")
	}
}

// keepAlive keeps a session that was opened by hand until the context ends.
func keepAlive(ctx context.Context, t *testing.T, stream leaseholdv1.SessionService_AttachClient, id uint64) {
	var both sync.WaitGroup
	both.Go(func() {
		for {
			if _, err := stream.Recv(); err != nil {
				return
			}
		}
	})
	both.Go(func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for seq := uint64(2); ; seq++ {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			if stream.Send(&leaseholdv1.AttachRequest{Request: &leaseholdv1.AttachRequest_KeepAlive{KeepAlive: &leaseholdv1.KeepAliveRequest{SessionId: id, Seq: seq, FencingRejections: 1}}}) != nil {
				return
			}
		}
	})
	t.Cleanup(both.Wait)
}

// O-82: every series of fixed labels is there at the first scrape, also on
// servers that do not lead.
func TestFirstScrapeHasEverySeries(t *testing.T) {
	t.Parallel()
	c := quickCluster(t, 3)
	for i := range c.running {
		first := c.scrape(i)
		for _, name := range []string{
			"leasehold_raft_is_leader", `leasehold_fencing_rejections_total{reason="stale_token"}`, `leasehold_leases_lost_total{cause="evicted"}`,
			"leasehold_audit_overlap_total", `leasehold_partition_unowned_seconds_total{keyspace="other"}`,
		} {
			if _, ok := first[name]; !ok {
				t.Errorf("server %d does not have %s", i, name)
			}
		}
	}
	eventually(t, 10*time.Second, "at most one server says that it leads", func() bool { // they are asked one after the other
		leads := 0.0
		for i := range c.running {
			leads += c.scrape(i)["leasehold_raft_is_leader"]
		}
		return leads <= 1
	})
}

// O-82: one refused write and one lost lease are one more at the servers than
// before, whoever scrapes the worker. Only then can an alert tell of the first.
func TestFirstRejectionAndFirstLossReachTheServers(t *testing.T) {
	t.Parallel()
	c := quickCluster(t, 1)
	const rejected, lost = `leasehold_fencing_rejections_total{reason="stale_token"}`, `leasehold_leases_lost_total{cause="evicted"}`
	if first := c.scrape(0); first[rejected]+first[lost] != 0 {
		t.Error("something was counted before there was a worker")
	}
	cl := c.client()
	createKeyspace(t, cl, "orders", 1, 10*time.Second, leaseholdv1.Takeover_TAKEOVER_FENCED)
	w, err := worker.Join(t.Context(), worker.Config{ID: "w1", Servers: c.servers(), Metrics: metrics.NewWorker(), Logger: testLogger(t, "w1")})
	if err != nil {
		t.Fatal(err)
	}
	guard := fence.NewMemory(w.Fencing())
	refused := make(chan error, 1)
	ended := make(chan error, 1)
	go func() {
		ended <- w.Run(t.Context(), "orders", func(ctx context.Context, l *worker.Lease) error {
			old := l.Stamp()
			old.Token--
			refused <- guard.Do(old, func() error { return nil })
			<-ctx.Done()
			return context.Cause(ctx)
		}, worker.Claim(guard))
	}()
	if err := <-refused; err == nil {
		t.Error("an old token was accepted")
	}
	is := func(name string, want float64) func() bool {
		return func() bool { return c.scrape(0)[name] == want }
	}
	eventually(t, 10*time.Second, "the server tells of the refused write", is(rejected, 1))
	eventually(t, 10*time.Second, "and of the checks of the claim and of the write", is("leasehold_fencing_checks_total", 2))
	if _, err := cl.Workers().EvictWorker(t.Context(), &leaseholdv1.EvictWorkerRequest{Id: "w1"}); err != nil {
		t.Fatal(err)
	}
	<-ended
	eventually(t, 10*time.Second, "the server tells of the lost lease", is(lost, 1))
	after := c.scrape(0)
	if after[rejected] != 1 || after["leasehold_fencing_checks_total"] != 2 {
		t.Errorf("counted more than once: %v rejections, %v checks", after[rejected], after["leasehold_fencing_checks_total"])
	}
	// The audit has seen what was granted, and nothing wrong.
	if n := after["leasehold_audit_intervals_checked_total"]; n != after[`leasehold_lease_grants_total{keyspace="orders"}`] || n < 1 {
		t.Errorf("the audit has seen %v leases of %v", n, after[`leasehold_lease_grants_total{keyspace="orders"}`])
	}
	if after["leasehold_audit_overlap_total"]+after["leasehold_audit_token_regression_total"]+after["leasehold_audit_unmatched_ends_total"] != 0 {
		t.Error("the audit found something")
	}
}

// What a server applies again after a start has been counted before it: the
// counters of the new process do not rise by it, or increase() would tell of
// thousands of grants that never were. The audit looks at all of it again.
func TestReplayedLogIsNotCountedAgain(t *testing.T) {
	t.Parallel()
	c := quickCluster(t, 1)
	createKeyspace(t, c.client(), "orders", 8, 10*time.Second, leaseholdv1.Takeover_TAKEOVER_FENCED)
	ctx, cancel := context.WithCancel(t.Context())
	w, err := worker.Join(ctx, worker.Config{ID: "w1", Servers: c.servers(), Logger: testLogger(t, "w1")})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		ended <- w.Run(ctx, "orders", func(_ context.Context, l *worker.Lease) error { <-l.Draining(); return nil })
	}()
	const grants, opened, seen = `leasehold_lease_grants_total{keyspace="orders"}`, "leasehold_sessions_opened_total", "leasehold_audit_intervals_checked_total"
	eventually(t, 10*time.Second, "all partitions are granted", func() bool { return c.scrape(0)[grants] == 8 })
	cancel()
	<-ended
	c.stopServer(0)
	c.start(0)
	c.ready()
	again := c.scrape(0)
	if again[seen] < 8 {
		t.Errorf("%v leases were audited, want the 8 of the log: nothing was applied again", again[seen])
	}
	if again[grants] != 0 || again[opened] != 0 {
		t.Errorf("%v grants and %v sessions were counted again", again[grants], again[opened])
	}
}

// The time without an owner goes on being counted exactly when nobody leads: a
// server alone of three counts it from its own copy of the state.
func TestUnownedSecondsGrowWithoutALeader(t *testing.T) {
	t.Parallel()
	c := quickCluster(t, 3)
	createKeyspace(t, c.client(), "orders", 8, 5*time.Second, leaseholdv1.Takeover_TAKEOVER_FENCED)
	const unowned = `leasehold_partition_unowned_seconds_total{keyspace="orders"}`
	eventually(t, 10*time.Second, "the keyspace is known everywhere", func() bool { _, ok := c.scrape(0)[unowned]; return ok })
	c.stopServer(1)
	c.stopServer(2)
	var began map[string]float64
	var at time.Time // before began was read
	eventually(t, 10*time.Second, "no leader is known", func() bool {
		at = time.Now()
		began = c.scrape(0)
		return began["leasehold_raft_has_leader"] == 0
	})
	var after map[string]float64
	eventually(t, 10*time.Second, "a second without an owner, eight times", func() bool {
		after = c.scrape(0)
		return after[unowned]-began[unowned] >= 8
	})
	if took, grown := time.Since(at).Seconds(), after[unowned]-began[unowned]; grown > 8*(took+1) {
		t.Errorf("%v partition-seconds in %v s", grown, took)
	}
	if after["leasehold_raft_has_leader"] != 0 {
		t.Error("there was a leader after all")
	}
}
