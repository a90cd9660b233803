package metrics

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
)

var update = flag.Bool("update", false, "rewrite testdata/series.golden")

// registries returns what a server and a worker expose when nothing has
// happened yet.
func registries(t *testing.T) (server, worker *prometheus.Registry, s *Server, w *Worker) {
	t.Helper()
	server, worker = prometheus.NewPedanticRegistry(), prometheus.NewPedanticRegistry()
	s = NewServer(server, ServerConfig{Version: "v0", Revision: "r0"})
	w = NewWorker()
	worker.MustRegister(w)
	return server, worker, s, w
}

func gather(t *testing.T, r *prometheus.Registry) []*dto.MetricFamily {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	return families
}

// Dashboards, alerts and people's own rules rest on these names: the diff of
// the golden file is the changelog of them.
func TestSeriesAreAsListed(t *testing.T) {
	server, worker, s, _ := registries(t)
	s.ObserveKeyspaces(0, []Keyspace{{Name: "orders"}})
	var b strings.Builder
	for _, side := range []struct {
		name string
		reg  *prometheus.Registry
	}{{"server", server}, {"worker", worker}} {
		fmt.Fprintf(&b, "# %s\n", side.name)
		for _, f := range gather(t, side.reg) {
			describeFamily(&b, f)
		}
		b.WriteString("\n")
	}
	file := filepath.Join("testdata", "series.golden")
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if b.String() != string(want) {
		t.Fatalf("series differ from %s (rewrite it with -update):\n%s", file, b.String())
	}
}

func describeFamily(b *strings.Builder, f *dto.MetricFamily) {
	fmt.Fprintf(b, "%s %s [%s]\n  %s\n", f.GetName(), strings.ToLower(f.GetType().String()), unit(f.GetName()), f.GetHelp())
	values := make(map[string][]string)
	var labels []string
	for _, m := range f.GetMetric() {
		for _, l := range m.GetLabel() {
			if !slices.Contains(labels, l.GetName()) {
				labels = append(labels, l.GetName())
			}
			if !slices.Contains(values[l.GetName()], l.GetValue()) {
				values[l.GetName()] = append(values[l.GetName()], l.GetValue())
			}
		}
	}
	for _, l := range labels {
		if l == "goversion" {
			values[l] = []string{"…"}
		}
		fmt.Fprintf(b, "  %s: %s\n", l, strings.Join(values[l], ", "))
	}
}

// unit is what the name says, as Prometheus' conventions want it.
func unit(name string) string {
	name = strings.TrimSuffix(name, "_total")
	for _, u := range []string{"seconds", "bytes", "ratio"} {
		if strings.HasSuffix(name, "_"+u) {
			return u
		}
	}
	return "count"
}

func TestPromlintIsClean(t *testing.T) {
	server, worker, _, _ := registries(t)
	for name, r := range map[string]*prometheus.Registry{"server": server, "worker": worker} {
		problems, err := testutil.GatherAndLint(r)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range problems {
			t.Errorf("%s: %s: %s", name, p.Metric, p.Text)
		}
	}
}

// countSeries counts as Prometheus stores them.
func countSeries(families []*dto.MetricFamily) int {
	n := 0
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if h := m.GetHistogram(); h != nil {
				n += len(h.GetBucket()) + 3 // +Inf, sum, count
				continue
			}
			n++
		}
	}
	return n
}

// A label may never grow with what users do.
func TestLabelsAreBounded(t *testing.T) {
	server, worker, s, w := registries(t)
	before := countSeries(gather(t, worker))
	var all []Keyspace
	for i := range 200 {
		name := fmt.Sprintf("keyspace-%d", i)
		all = append(all, Keyspace{Name: name, Owned: 10, Unowned: 1})
		s.Granted(name, 1)
		for _, f := range []func(string){
			func(v string) { s.Moved(v, 1) }, func(v string) { s.Takeover(v, time.Second) },
			func(v string) { s.Handoff(v, time.Second) }, s.SessionExpired, func(v string) { s.KeepAlives(v, 1) },
			s.Gossip().Rejected, s.LimitHit, s.AuthFailed,
			func(v string) { s.CertificateExpires(v, time.Unix(1, 0)) },
			w.KeepAliveFailed, w.Lost, w.FencingRejected,
			func(v string) {
				s.Call("etcd", v, v)
				s.Call(v, v, v)
				s.CallTook("native", v, time.Second)
				s.Connected(v, 1)
			},
			func(v string) { s.Reported(Reported{Rejections: []Count{{v, 1}}, Lost: []Count{{v, 1}}}) }, w.Returned,
		} {
			f(name)
		}
	}
	s.ObserveKeyspaces(time.Second, all)
	if n, want := countSeries(gather(t, server)), ServerSeries(len(all)); n != want {
		t.Errorf("a server with 200 keyspaces has %d series, the formula says %d", n, want)
	}
	s.ObserveKeyspaces(time.Second, all[:4])
	if n, want := countSeries(gather(t, server)), ServerSeries(4); n != want || n > 550 {
		t.Errorf("a server with 4 keyspaces has %d series, the formula says %d; 600 with those of the process are promised", n, want)
	} else {
		t.Logf("server: %d series with 4 keyspaces", n)
	}
	if n := countSeries(gather(t, worker)); n > 120 || n != before {
		t.Errorf("a worker has %d series, %d before, at most 120 are promised", n, before)
	} else {
		t.Logf("worker: %d series", n)
	}
	for _, r := range []*prometheus.Registry{server, worker} {
		for _, f := range gather(t, r) {
			for _, m := range f.GetMetric() {
				for _, l := range m.GetLabel() {
					switch l.GetName() {
					case "partition", "key", "session", "worker", "token", "addr", "peer":
						t.Errorf("%s has the label %s", f.GetName(), l.GetName())
					case "keyspace":
					default:
						if strings.HasPrefix(l.GetValue(), "keyspace-") {
							t.Errorf("%s took %s=%s", f.GetName(), l.GetName(), l.GetValue())
						}
					}
				}
			}
		}
	}
}

func value(t *testing.T, r *prometheus.Registry, name string, labels ...string) float64 {
	t.Helper()
	for _, f := range gather(t, r) {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			var got []string
			for _, l := range m.GetLabel() {
				got = append(got, l.GetName()+"="+l.GetValue())
			}
			if slices.Equal(got, labels) {
				if h := m.GetHistogram(); h != nil {
					return float64(h.GetSampleCount())
				}
				return cmp.Or(m.GetCounter().GetValue(), m.GetGauge().GetValue())
			}
		}
	}
	t.Fatalf("no %s%v", name, labels)
	return 0
}

// Code that measures never asks whether somebody listens.
func TestNilReceiversDoNothing(t *testing.T) {
	var s *Server
	s.ObserveKeyspaces(time.Second, []Keyspace{{Name: "a", Unowned: 1}})
	s.Granted("a", 1)
	s.GrantsRefused(1)
	s.Moved("join", 1)
	s.Takeover("crash", time.Second)
	s.Handoff("drain", time.Second)
	s.Sessions(1, 2, 3)
	s.SessionOpened()
	s.SessionExpired("ttl")
	s.ExpiryOverdue(time.Second)
	s.KeepAlives("renewed", 1)
	s.Planned(1, 2, 1.5)
	s.Renewed(time.Second, time.Second)
	s.Attached(1)
	s.Ready(true)
	s.Audited(Audit{Checked: 1})
	s.Reported(Reported{Checks: 1})
	s.WorkersPaused(1)
	s.Call("native", "worker", "ok")
	s.CallTook("native", "read", time.Second)
	s.Connected("grpc", 1)
	s.EventWatcher(1)
	s.WatchesCompacted(1)
	s.ObserveKeys(Keys{Revision: 1})
	s.Watchers(1, 1, 1)
	s.LimitHit("streams")
	s.AuthFailed("bad")
	s.CertificateExpires("server", time.Unix(1, 0))
	r := s.Raft()
	r.Observe(RaftStatus{})
	r.Committed(time.Second)
	r.Batched(1)
	r.Fsync(time.Second)
	r.SnapshotTaken(time.Second)
	r.Applied(time.Second)
	r.LeaderChanged()
	r.Poisoned()
	r.ObserveStorage(StorageStatus{})
	r.SnapshotFailed()
	r.DiskStalled()
	g := s.Gossip()
	g.Members(1, 2, 3, 4)
	g.Rejected("label")
	g.Rejoined(true)
	g.Conflict()
	g.Probed(true)
	g.Bounced()
	g.UDPFailed()
	var w *Worker
	w.Attached(true, time.Second)
	w.Paused(time.Second)
	w.Returned("done")
	w.ClaimRetried()
	w.Held(1)
	w.Acked(time.Second, time.Second)
	w.KeepAliveFailed("timeout")
	w.RenewalOverdue(time.Second)
	w.Lost("expired")
	w.Stopped(time.Second)
	w.CallbackStarted()
	w.CallbackReturned()
	w.ServerSwitched()
	w.Overrun()
	w.FencingChecked(1)
	w.FencingRejected("stale_token")
	NewSink(nil).AddSample([]string{"raft", "commitTime"}, 1)
}

func TestFixedLabelsStartAtZero(t *testing.T) {
	server, worker, _, _ := registries(t)
	for _, c := range []struct {
		r      *prometheus.Registry
		name   string
		labels string
	}{
		{server, "leasehold_partition_moves_total", "reason=crash"},
		{server, "leasehold_lease_renewals_total", "outcome=refused"},
		{server, "leasehold_raft_fsync_duration_seconds", ""},
		{server, "leasehold_gossip_rejected_packets_total", "reason=decrypt"},
		{server, "leasehold_fencing_rejections_total", "reason=token_regression"},
		{server, "leasehold_rpc_requests_total", "api=etcd call=txn outcome=refused"},
		{server, "leasehold_rpc_duration_seconds", "api=native kind=write"},
		{server, "leasehold_leases_lost_total", "cause=superseded"},
		{server, "leasehold_limit_rejections_total", "limit=handshakes"},
		{server, "leasehold_auth_failures_total", "reason=wrong_role"},
		{server, "leasehold_certificate_expiry_timestamp_seconds", "certificate=server"},
		{server, "leasehold_raft_is_leader", ""},
		{server, "leasehold_audit_overlap_total", ""},
		{server, "leasehold_partition_unowned_seconds_total", "keyspace=other"},
		{worker, "leasehold_worker_lease_lost_total", "cause=superseded"},
		{worker, "leasehold_worker_keep_alives_total", "outcome=timeout"},
	} {
		if got := value(t, c.r, c.name, strings.Fields(c.labels)...); got != 0 {
			t.Errorf("%s{%s} is %v", c.name, c.labels, got)
		}
	}
}

// An embedder may run a server and a worker in one process.
func TestServerAndWorkerShareARegistry(t *testing.T) {
	r := prometheus.NewPedanticRegistry()
	NewServer(r, ServerConfig{})
	r.MustRegister(NewWorker())
	gather(t, r)
}

func TestWorkerMeasures(t *testing.T) {
	_, worker, _, w := registries(t)
	w.Held(3)
	w.RenewalOverdue(2 * time.Second)
	if got := value(t, worker, "leasehold_worker_renewal_overdue_seconds"); got != 2 {
		t.Errorf("overdue is %v", got)
	}
	w.Acked(7*time.Second, 10*time.Second)
	w.Acked(-time.Second, 10*time.Second) // came too late: counted as nothing left
	if got := value(t, worker, "leasehold_worker_renewal_overdue_seconds"); got != 0 {
		t.Errorf("overdue is %v after an acknowledgement", got)
	}
	if got := value(t, worker, "leasehold_worker_lease_margin_ratio"); got != 2 {
		t.Errorf("%v margins, want 2", got)
	}
	if got := value(t, worker, "leasehold_worker_keep_alives_total", "outcome=ok"); got != 2 {
		t.Errorf("%v keep-alives, want 2", got)
	}
	w.CallbackStarted()
	w.CallbackStarted()
	w.CallbackReturned()
	if got := value(t, worker, "leasehold_worker_callbacks_running"); got != 1 {
		t.Errorf("%v handlers running, want 1", got)
	}
}

func TestNegativeCountsAreIgnored(t *testing.T) {
	server, _, s, _ := registries(t)
	s.Granted("a", -1)
	s.Moved("join", -3)
	s.CallTook("native", "read", -time.Second)
	s.GrantsRefused(-1)
	if got := value(t, server, "leasehold_partition_moves_total", "reason=join"); got != 0 {
		t.Errorf("moves are %v", got)
	}
}

func TestAccessIsShown(t *testing.T) {
	server, _, s, _ := registries(t)
	s.LimitHit("handshakes")
	s.AuthFailed("wrong_role")
	s.CertificateExpires("server", time.UnixMilli(1_700_000_000_500))
	s.CertificateExpires("authority", time.Time{})
	for series, want := range map[string]float64{
		"limit_rejections_total limit=handshakes":                    1,
		"limit_rejections_total limit=streams":                       0,
		"auth_failures_total reason=wrong_role":                      1,
		"certificate_expiry_timestamp_seconds certificate=server":    1_700_000_000,
		"certificate_expiry_timestamp_seconds certificate=authority": 0,
	} {
		name, label, _ := strings.Cut(series, " ")
		if got := value(t, server, "leasehold_"+name, label); got != want {
			t.Errorf("%s is %v, want %v", series, got, want)
		}
	}
}

func TestStorageIsShown(t *testing.T) {
	server, _, s, _ := registries(t)
	s.Raft().ObserveStorage(StorageStatus{
		LastLogIndex: 120, SnapshotIndex: 100, OldestEntry: time.Now().Add(-time.Hour), SnapshotTime: time.UnixMilli(1_700_000_000_500),
		SnapshotBytes: 10, DataBytes: 40, FreeBytes: 50,
	})
	s.Raft().SnapshotFailed()
	for name, want := range map[string]float64{
		"raft_snapshot_last_success_timestamp_seconds": 1_700_000_000.5,
		"raft_snapshot_size_bytes":                     10,
		"raft_snapshot_failures_total":                 1,
		"raft_log_entries_since_snapshot":              20,
		"data_dir_size_bytes":                          40,
		"data_dir_free_bytes":                          50,
		"storage_poisoned":                             0,
	} {
		if got := value(t, server, "leasehold_"+name); got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	if age := value(t, server, "leasehold_raft_oldest_log_age_seconds"); age < 3600 || age > 3700 {
		t.Errorf("oldest entry of %v s", age)
	}
	s.Raft().ObserveStorage(StorageStatus{SnapshotIndex: 9, Poisoned: true}) // an empty log
	if got := value(t, server, "leasehold_raft_log_entries_since_snapshot"); got != 0 {
		t.Errorf("%v entries in an empty log", got)
	}
	if got := value(t, server, "leasehold_storage_poisoned"); got != 1 {
		t.Errorf("poisoned is %v", got)
	}
}
