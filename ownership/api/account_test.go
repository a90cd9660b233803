package api

import (
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/leasehold-dev/leasehold/metrics"
	pb "github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"github.com/leasehold-dev/leasehold/raftstore"
	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// meters are the registries of a cluster's servers.
type meters []*prometheus.Registry

// add is a change of a server's Config.
func (m *meters) add(c *Config) {
	r := prometheus.NewPedanticRegistry()
	*m = append(*m, r)
	c.Metrics = metrics.NewServer(r, metrics.ServerConfig{})
}

// sum adds up a series over all servers. Of labels one value is enough.
func (m *meters) sum(t testing.TB, name, label string) (sum float64) {
	t.Helper()
	for _, r := range *m {
		families, err := r.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			if f.GetName() != "leasehold_"+name {
				continue
			}
			for _, x := range f.GetMetric() {
				for _, l := range x.GetLabel() {
					if l.GetValue() == label {
						sum += x.GetCounter().GetValue()
					}
				}
				if label == "" {
					sum += x.GetCounter().GetValue() + x.GetGauge().GetValue() + float64(x.GetHistogram().GetSampleCount())
				}
			}
		}
	}
	return sum
}

func counts(session, process, seq, stale uint64) *pb.KeepAliveRequest {
	return &pb.KeepAliveRequest{
		SessionId: session, Seq: seq, Process: process, FencingChecks: 10 * stale, FencingRejections: stale, Overruns: stale,
		Rejections: &pb.FencingRejections{StaleToken: stale}, Lost: &pb.LostLeases{Expired: stale},
	}
}

// say sends a keep-alive on the stream and waits until it has counted.
func (p *fakeWorker) say(r *pb.KeepAliveRequest) {
	p.t.Helper()
	p.send(&pb.AttachRequest{Request: &pb.AttachRequest_KeepAlive{KeepAlive: r}})
	p.until(func(m *pb.AttachResponse) bool { return m.GetKeepAlive().GetSeq() == r.GetSeq() })
}

// What workers report is counted once, whichever way it comes, in whatever
// order, under whichever session, and whoever leads.
func TestWorkersReportsCountOnce(t *testing.T) {
	var m meters
	c := startCluster(t, 3, m.add)
	check := func(when string, want float64) {
		t.Helper()
		for _, x := range []struct {
			name, label string
			times       float64
		}{
			{"fencing_rejections_total", "stale_token", 1}, {"fencing_checks_total", "", 10},
			{"overruns_total", "", 1}, {"leases_lost_total", "expired", 1}, {"fencing_rejections_total", "other", 0},
		} {
			if got := m.sum(t, x.name, x.label); got != x.times*want {
				t.Errorf("%s: %s{%s} is %v, want %v", when, x.name, x.label, got, x.times*want)
			}
		}
	}
	old := c.leader(t)
	conn := old.dial(t)
	createKeyspace(t, conn, "orders", 4)
	w := openWorker(t, conn, 11, "w1", "orders")
	w.say(counts(11, 11, 1, 3))
	check("the first report of a session opened here", 3)
	w.say(counts(11, 11, 2, 3))
	check("nothing new", 3)
	relay := func(s *server, r *pb.KeepAliveRequest) {
		t.Helper()
		if _, err := pb.NewSessionServiceClient(s.dial(t)).KeepAlive(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	relay(old, counts(11, 11, 3, 1))
	w.say(counts(11, 11, 4, 3))
	check("an older report came later", 3)
	relay(c.follower(t), counts(11, 11, 5, 4))
	check("by way of another server", 4)

	w.cancel()
	_ = w.end()
	w = dialWorker(t, conn, resumeRequest(11, "w1"))
	w.say(counts(11, 11, 6, 5))
	check("resumed at the same leader", 5)

	transfer(t, old)
	_ = w.end()
	eventually(t, "another leader", func() bool { return c.leader(t) != old })
	conn = c.leader(t).dial(t)
	w = dialWorker(t, conn, resumeRequest(11, "w1"))
	w.say(counts(11, 11, 7, 6))
	check("a new leader counts from what it hears first", 5)
	w.say(counts(11, 11, 8, 8))
	check("and goes on from there", 7)

	next := openWorker(t, conn, 12, "w4", "orders")
	next.say(counts(12, 11, 1, 9))
	check("the next session of the same process", 8)
	second := openWorker(t, conn, 13, "w2", "orders")
	second.say(counts(13, 13, 1, 2))
	check("another process", 10)
	third := openWorker(t, conn, 14, "w3", "orders")
	third.say(counts(14, 4711, 1, 100))
	check("a process that began under another leader", 10)
	if n := m.sum(t, "lease_renewal_margin_ratio", ""); n < 5 {
		t.Errorf("%v margins recorded", n)
	}
}

// A leader that is deposed and does not know it counts nothing, nor one that
// cannot commit: the next leader will. What the log itself refuses has been heard.
func TestReportCountsWhenTheLogHasAnswered(t *testing.T) {
	var m meters
	var cfg Config
	m.add(&cfg)
	h := &hub{meter: cfg.Metrics, clock: monotonic{time.Now()}}
	h.accounts.reset()
	h.accounts.open(11)
	r := reportOf(counts(11, 11, 1, 3))
	of := h.accounts.of(11, 11)
	h.tell(of, &r, raftstore.KeepAlive{}, raftstore.ErrLostLeadership)
	h.tell(of, &r, raftstore.KeepAlive{}, &raftstore.NotLeaderError{})
	if got := m.sum(t, "overruns_total", ""); got != 0 {
		t.Errorf("%v counted without an answer of the log", got)
	}
	h.tell(of, &r, raftstore.KeepAlive{}, &state.Refusal{Reason: state.ReasonNotFound})
	if got := m.sum(t, "overruns_total", ""); got != 3 {
		t.Errorf("%v counted when the log had refused, want 3", got)
	}
}

// Sessions come and go, and what is remembered of them is bounded.
func TestAccountsOfEndedSessionsAreForgotten(t *testing.T) {
	var all accounts
	all.reset()
	for id := state.SessionID(1); id <= 3*keptAccounts; id++ {
		all.open(id)
		all.of(id, uint64(id))
		all.end(id)
	}
	if n := len(all.byProcess); n > keptAccounts || len(all.bySession)+len(all.opened) > 0 || len(all.ended) > keptAccounts {
		t.Errorf("%d processes, %d sessions, %d opened, %d ended are remembered", n, len(all.bySession), len(all.opened), len(all.ended))
	}
}

// A worker that says another process than it began with does not make the one that
// it began with stay for ever, and reports may come while its sessions come and go.
func TestAccountsGoByTheProcessTheyBeganWith(t *testing.T) {
	var all accounts
	all.reset()
	for id := state.SessionID(1); id <= 3*keptAccounts; id++ {
		first := all.of(id, uint64(id))
		var late sync.WaitGroup
		late.Go(func() { first.take(nil, &report{process: uint64(id) << 32, checks: uint64(id)}) })
		if id%2 == 0 {
			late.Wait() // said before the end; otherwise meanwhile
		}
		all.end(id)
		late.Wait()
	}
	if n := len(all.byProcess); n > keptAccounts {
		t.Errorf("%d processes are remembered, want at most %d", n, keptAccounts)
	}
}
