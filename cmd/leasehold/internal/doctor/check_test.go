package doctor

import (
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
)

func runCheck(name string, f *Facts, change func(*Thresholds)) Result {
	for _, c := range Checks() {
		if c.Name == name {
			t := c.Defaults
			if change != nil {
				change(&t)
			}
			return c.Run(f, t)
		}
	}
	return Result{State: -1}
}

func TestChecks(t *testing.T) {
	nobody := &Facts{Servers: []Server{{Addr: "10.0.0.1:7400", Second: Look{Err: errors.New("refused")}}}}
	for _, c := range []struct {
		name   string
		facts  func(*Facts)
		limits func(*Thresholds)
		want   State
		says   string
	}{
		{"quorum", func(*Facts) {}, nil, OK, "leader s1, 3 of 3 voters up, 2 needed"},
		{"quorum", func(f *Facts) { f.down("s3", "dead", -time.Millisecond) }, nil, WarningState, "2 of 3"},
		{"quorum", func(f *Facts) { f.down("s3", "dead", -time.Millisecond) }, func(t *Thresholds) { t.Warning = 0 }, OK, "2 of 3"},
		{"quorum", func(f *Facts) {
			f.down("s3", "dead", -time.Millisecond)
			f.down("s2", "dead", -time.Millisecond)
			f.noLeader()
		}, nil, CriticalState, "no leader, 1 of 3"},
		{"quorum", (*Facts).noLeader, nil, CriticalState, "no leader, 3 of 3"},
		{"quorum", func(f *Facts) { f.down("s1", "alive", 0) }, nil, WarningState, "the leader gives no answer here"},
		{"unowned", func(*Facts) {}, nil, OK, "0 partitions"},
		{"unowned", func(f *Facts) { f.keyspace("orders").Status.Unowned = 3 }, nil, WarningState, "3 of 64 of orders"},
		{"unowned", func(f *Facts) { f.keyspace("orders").Status.Unowned = 33 }, nil, CriticalState, "33 of 64"},
		{"unowned", func(f *Facts) { f.keyspace("orders").Status.Unowned = 33 }, func(t *Thresholds) { t.Keyspace = "mails" }, OK, "0 partitions"},
		{"unowned", func(f *Facts) { f.keyspace("orders").Status.Unowned = 5 }, func(t *Thresholds) { t.Warning, t.Critical = 5, 8 }, OK, "5 partitions"},
		{"unowned", func(f *Facts) { f.keyspace("orders").Status.Unowned = 9 }, func(t *Thresholds) { t.Warning, t.Critical = 5, 8 }, CriticalState, "9 of 64"},
		{"unowned", func(f *Facts) { unowned(f, "orders", "no room", pb.PartitionState_PARTITION_STATE_UNOWNED, 3) }, nil, WarningState, "(no room)"},
		{"unowned", func(*Facts) {}, func(t *Thresholds) { t.Keyspace = "nothing" }, Unknown, `no keyspace "nothing"`},
		{"unowned", func(f *Facts) { f.ListsError = errors.New("deadline") }, nil, Unknown, "deadline"},
		{"lease", func(*Facts) {}, nil, OK, "2 workers renew in time"},
		{"lease", worker(func(w *pb.Worker) { w.RemainingMs = 4 * second }), nil, WarningState, "w1 (40 %"},
		{"lease", worker(func(w *pb.Worker) { w.RemainingMs = 2 * second }), nil, CriticalState, "w1 (20 %"},
		{"lease", worker(func(w *pb.Worker) { w.RemainingMs, w.Keyspaces = 2*second, []string{"mails"} }), func(t *Thresholds) { t.Keyspace = "orders" }, OK, "1 workers"},
		{"disk", func(*Facts) {}, nil, OK, "s1 50.0 GiB free (50.0 %)"},
		{"disk", health("s2", func(h *pb.ServerHealth) { h.DiskFreeBytes = 9 << 30 }), nil, WarningState, "s2 9.0 GiB"},
		{"disk", health("s2", func(h *pb.ServerHealth) { h.DiskFreeBytes = 2 << 30 }), nil, CriticalState, "s2 2.0 GiB"},
		{"disk", health("s2", func(h *pb.ServerHealth) { h.StoragePoisoned = true }), nil, CriticalState, "s2: a write"},
		{"disk", func(f *Facts) { f.each(func(s *Server) { s.Second.Health = nil }) }, nil, Unknown, "no server knows"},
		{"disk", func(f *Facts) {
			f.each(func(s *Server) { s.Second.Health.DataDir, s.Second.Health.DiskSizeBytes = "", 0 })
		}, nil, OK, "in memory"},
		{"fsync", func(*Facts) {}, nil, OK, "s1 p99 5.0 ms"},
		{"fsync", health("s2", func(h *pb.ServerHealth) { h.FsyncP99Ms = 101 }), nil, WarningState, "s2 p99 101.0 ms"},
		{"fsync", health("s2", func(h *pb.ServerHealth) { h.FsyncP99Ms = 501 }), nil, CriticalState, "s2"},
		{"backup", func(*Facts) {}, nil, OK, "no backup in the 1h0m0s"},
		{"backup", health("s2", func(h *pb.ServerHealth) { h.UptimeMs = 27 * 3600 * second }), nil, WarningState, "27h"},
		{"backup", health("s2", func(h *pb.ServerHealth) { h.UptimeMs = 53 * 3600 * second }), nil, CriticalState, "53h"},
		{"backup", func(f *Facts) {
			h := f.byID("s2").Second.Health
			h.UptimeMs, h.LastBackup = 900*3600*second, timestamppb.New(h.WallClock.AsTime().Add(-2*time.Hour))
		}, nil, OK, "2h0m0s ago"},
		{"clock", func(*Facts) {}, nil, OK, "give or take"},
		{"clock", func(f *Facts) { f.drift("s2", 1.009) }, nil, WarningState, "s2 runs 0.90 % faster"},
		{"clock", func(f *Facts) { f.drift("s2", 1.015) }, nil, CriticalState, "s2 runs 1.50 % faster"},
		{"clock", func(f *Facts) { f.drift("s2", 1.015); f.slow(20 * time.Millisecond) }, nil, OK, "give or take"}, // not certain
		{"clock", func(f *Facts) { f.each(func(s *Server) { s.First.Health = nil }) }, nil, Unknown, "could not be compared"},
		{"gossip", func(*Facts) {}, nil, OK, "3 servers see one another"},
		{"gossip", gossipView("s1", "s3", "dead"), nil, WarningState, "s1 sees it dead"},
		{"version", func(*Facts) {}, nil, OK, "version 1.0.0, feature level 1"},
		{"version", func(f *Facts) { f.byID("s3").Second.Status.Version = "1.1.0" }, nil, WarningState, "1.1.0 on s3"},
		{"version", func(f *Facts) { f.byID("s1").Second.Status.FeatureLevel = 2 }, nil, CriticalState, "too old"},
	} {
		f := healthy()
		c.facts(f)
		if r := runCheck(c.name, f, c.limits); r.State != c.want || !strings.Contains(r.Text, c.says) {
			t.Errorf("%s: %s, want %v with %q", c.name, r.Line(), c.want, c.says)
		}
	}
	for _, c := range Checks() {
		want := Unknown
		if c.Name == "quorum" {
			want = CriticalState
		}
		if r := runCheck(c.Name, nobody, nil); r.State != want {
			t.Errorf("nobody answers: %s says %s", c.Name, r.Line())
		}
	}
}

func TestAllChecksGiveTheWorst(t *testing.T) {
	f := healthy()
	if r := All(f, ""); r.State != OK || !strings.Contains(r.Text, "9 checks") {
		t.Error(r.Line())
	}
	f.each(func(s *Server) { s.Second.Health.DiskSizeBytes = 0 }) // unknown
	if r := All(f, ""); r.State != Unknown {
		t.Error(r.Line())
	}
	f.byID("s3").Second.Status.Version = "1.1.0" // a warning is known to be wrong: worse than not to know
	if r := All(f, ""); r.State != WarningState || !strings.Contains(r.Text, "version: ") || !strings.Contains(r.Text, "disk: ") {
		t.Error(r.Line())
	}
	f.noLeader()
	if r := All(f, ""); r.State != CriticalState || !strings.Contains(r.Text, "quorum: no leader") {
		t.Error(r.Line())
	}
}

// One line, one bar, figures that a plugin reader understands.
func TestLinesAreThoseOfPlugins(t *testing.T) {
	figure := regexp.MustCompile(`^'[^'=]+'=-?[0-9.]+(s|%)?(;-?[0-9.]+:?;-?[0-9.]+:?)?$`)
	for _, c := range Checks() {
		f := healthy()
		f.Workers[0].Id, f.Workers[0].RemainingMs = "a|b\nc", 1
		f.keyspace("orders").Name = "it's"
		line := runCheck(c.Name, f, nil).Line()
		if strings.Contains(line, "\n") || strings.Count(line, "|") > 1 {
			t.Errorf("%s: %q", c.Name, line)
		}
		text, figures, _ := strings.Cut(line, " | ")
		if !regexp.MustCompile(`^(OK|WARNING|CRITICAL|UNKNOWN) - .`).MatchString(text) {
			t.Errorf("%s: %q", c.Name, line)
		}
		for _, x := range strings.Fields(figures) {
			if !figure.MatchString(x) {
				t.Errorf("%s: figure %q", c.Name, x)
			}
		}
	}
}
