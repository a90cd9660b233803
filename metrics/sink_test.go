package metrics

import (
	"testing"
	"time"

	gometrics "github.com/hashicorp/go-metrics"
	"github.com/prometheus/client_golang/prometheus"
)

// What the libraries really send, through go-metrics as they call it.
func TestSinkPassesTheListAndDropsTheRest(t *testing.T) {
	r := prometheus.NewPedanticRegistry()
	s := NewServer(r, ServerConfig{})
	before := countSeries(gather(t, r))
	if err := NewSink(s).Install(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := NewSink(nil).Install(); err != nil {
			t.Fatal(err)
		}
	})
	gometrics.MeasureSince([]string{"raft", "leader", "dispatchLog"}, time.Now().Add(-20*time.Millisecond))
	gometrics.MeasureSince([]string{"raft", "rpc", "appendEntries"}, time.Now())
	gometrics.SetGauge([]string{"raft", "thread", "main", "saturation"}, 0.25)
	gometrics.SetGauge([]string{"raft", "fsm", "lastRestoreDuration"}, 1500)
	gometrics.IncrCounter([]string{"raft", "transition", "leader_lease_timeout"}, 1)
	gometrics.IncrCounter([]string{"raft", "state", "candidate"}, 2)
	gometrics.IncrCounterWithLabels([]string{"memberlist", "msg", "suspect"}, 3, []gometrics.Label{{Name: "a", Value: "b"}})
	gometrics.SetGaugeWithLabels([]string{"memberlist", "health", "score"}, 2, nil)
	gometrics.AddSampleWithLabels([]string{"memberlist", "queue", "broadcasts"}, 7, nil)
	gometrics.MeasureSinceWithLabels([]string{"raft", "replication", "appendEntries", "rpc"}, time.Now().Add(-20*time.Millisecond), []gometrics.Label{{Name: "peer_id", Value: "server-1"}})
	gometrics.AddSample([]string{"raft", "leader", "lastContact"}, 40)
	gometrics.IncrCounter([]string{"raft", "transition", "heartbeat_timeout"}, 1)
	gometrics.MeasureSinceWithLabels([]string{"raft", "replication", "installSnapshot"}, time.Now(), nil)
	gometrics.MeasureSince([]string{"raft", "rpc", "installSnapshot"}, time.Now())
	gometrics.MeasureSinceWithLabels([]string{"memberlist", "probeNode"}, time.Now(), nil)
	gometrics.IncrCounterWithLabels([]string{"memberlist", "udp", "sent"}, 100, nil)
	// Not on the list: a peer's name in the key, and whatever else comes.
	gometrics.MeasureSince([]string{"raft", "replication", "heartbeat", "server-1"}, time.Now())
	gometrics.MeasureSince([]string{"raft", "replication", "appendEntries", "rpc", "server-1"}, time.Now())
	gometrics.IncrCounter([]string{"memberlist", "tcp", "accept"}, 100)
	gometrics.AddSample([]string{"a name that is longer than anything on the list, much longer, really"}, 1)
	gometrics.EmitKey([]string{"raft", "state", "candidate"}, 1)

	for name, want := range map[string]float64{
		"leasehold_raft_dispatch_duration_seconds":     1,
		"leasehold_raft_append_duration_seconds":       1,
		"leasehold_raft_replication_duration_seconds":  1,
		"leasehold_raft_follower_silence_seconds":      1,
		"leasehold_raft_heartbeat_timeouts_total":      1,
		"leasehold_raft_snapshots_sent_total":          1,
		"leasehold_raft_snapshots_received_total":      1,
		"leasehold_gossip_probe_duration_seconds":      1,
		"leasehold_raft_last_restore_duration_seconds": 1.5,
		"leasehold_raft_leader_leases_lost_total":      1,
		"leasehold_raft_elections_started_total":       2,
		"leasehold_gossip_suspicions_total":            3,
		"leasehold_gossip_health_score":                2,
		"leasehold_gossip_queue_depth":                 7,
	} {
		if got := value(t, r, name); got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	if got := value(t, r, "leasehold_gossip_bytes_total", "direction=udp_sent"); got != 100 {
		t.Errorf("%v bytes sent", got)
	}
	if got := value(t, r, "leasehold_raft_thread_saturation_ratio", "thread=main"); got != 0.25 {
		t.Errorf("saturation is %v", got)
	}
	if n := countSeries(gather(t, r)); n != before {
		t.Errorf("%d series, %d before: the sink made some", n, before)
	}
	// The 20 ms above lie in their bucket: the unit is right.
	for _, f := range gather(t, r) {
		if f.GetName() == "leasehold_raft_dispatch_duration_seconds" {
			if sum := f.GetMetric()[0].GetHistogram().GetSampleSum(); sum < 0.02 || sum > 10 {
				t.Errorf("20 ms were recorded as %v s", sum)
			}
		}
	}
}

func TestSinkDoesNotAllocate(t *testing.T) {
	k := NewSink(NewServer(nil, ServerConfig{}))
	key, unlisted := []string{"raft", "leader", "dispatchLog"}, []string{"raft", "net", "rpcDecode"}
	if n := testing.AllocsPerRun(100, func() {
		k.AddSample(key, 1.5)
		k.AddSample(unlisted, 1.5)
	}); n != 0 {
		t.Fatalf("%v allocations a sample", n)
	}
}

func BenchmarkSink(b *testing.B) {
	k := NewSink(NewServer(nil, ServerConfig{}))
	for name, key := range map[string][]string{
		"listed":   {"raft", "leader", "dispatchLog"},
		"unlisted": {"raft", "net", "rpcDecode"},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				k.AddSample(key, 1.5)
			}
		})
	}
}

func BenchmarkKeepAlives(b *testing.B) {
	s := NewServer(nil, ServerConfig{})
	for b.Loop() {
		s.KeepAlives("renewed", 1)
	}
}
