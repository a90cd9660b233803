package rules

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-dev/leasehold/metrics/mixin/live"
)

// factor makes seconds of minutes: what fires after ten minutes does so after
// ten seconds here.
const factor = 60

// ofTheMachine are alerts about how quick this machine is. What a test machine
// does to them, with other tests beside it, says nothing about the rules.
var ofTheMachine = []string{"LeaseholdFsyncSlow", "LeaseholdApiSlow", "LeaseholdRenewalMarginLow", "LeaseholdWorkerPauses", "LeaseholdDiskFilling", "LeaseholdDiskStalled"}

// The shipped rules, in a hurry, with a real Prometheus on a real cluster: none
// fires while all is well, the right one fires when the cluster is broken, and
// is quiet again when it is mended.
func TestAlertsFire(t *testing.T) {
	live.Need(t, "prometheus")
	file := filepath.Join(t.TempDir(), "leasehold.rules.yml")
	if err := os.WriteFile(file, Write(factor), 0o600); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	c := live.Start(t, live.Options{})
	p := live.StartPrometheus(t, c, live.PrometheusOptions{Rules: []string{file}})
	s := &scene{t: t, c: c, p: p}
	s.took("start", began)

	s.wellFor(20 * time.Second)
	s.act("LeaseholdStaleWriters", s.stopAWorker, func() {})
	s.act("LeaseholdPartitionsUnowned", s.endWorkers, s.startWorkers)
	s.act("LeaseholdMoveStorm", s.flap, func() { c.AwaitOwned(time.Minute) })
	s.act("LeaseholdNoLeader", s.killServers, s.startServers)
	s.worded()
	s.proven()
}

// scene is a cluster that is broken and mended.
type scene struct {
	t      *testing.T
	c      *live.Cluster
	p      *live.Prometheus
	killed []*live.Server
}

func (s *scene) took(what string, since time.Time) {
	s.t.Logf("%-60s %5.1f s", what, time.Since(since).Seconds())
}

// wellFor holds that every rule works, and waits until no alert has fired for so
// long: on a busy machine the servers may have elected another leader before.
func (s *scene) wellFor(d time.Duration) {
	s.t.Helper()
	began := time.Now()
	span := fmt.Sprintf("%ds", int(d.Seconds()))
	live.Await(s.t, d+3*time.Minute, "no alert for "+span, func() error {
		long, err := s.p.Query(`count(process_start_time_seconds{` + job + `} offset ` + span + `) == 3`)
		if err == nil && len(long) == 0 {
			err = errors.New("Prometheus has not looked for so long")
		}
		if err != nil {
			return err
		}
		fired, err := s.p.Query(`count by (alertname) (count_over_time(ALERTS{alertstate="firing", alertname!~"` + strings.Join(ofTheMachine, "|") + `"}[` + span + `]))`)
		if err == nil && len(fired) > 0 {
			err = fmt.Errorf("%v", fired)
		}
		return err
	})
	rules, err := s.p.Rules()
	if err != nil {
		s.t.Fatal(err)
	}
	want := -len(rules)
	for _, g := range Groups() {
		want += len(g.Records) + len(g.Alerts)
	}
	if want != 0 {
		s.t.Errorf("%d rules are not loaded", want)
	}
	for _, r := range rules {
		if r.Health != "ok" {
			s.t.Errorf("rule %s is %s: %s", r.Name, r.Health, r.Error)
		}
	}
	s.took("no alert", began)
}

// act breaks the cluster, waits for an alert, mends the cluster and waits for
// quiet. It begins when the alert does not fire.
func (s *scene) act(alert string, breakIt func(), mend func()) {
	s.t.Helper()
	s.p.AwaitQuiet(s.t, time.Minute, alert)
	began := time.Now()
	breakIt()
	s.p.AwaitFiring(s.t, time.Minute, alert)
	s.took(alert+" fires", began)
	began = time.Now()
	mend()
	s.p.AwaitQuiet(s.t, time.Minute, alert)
	s.took(alert+" is quiet", began)
}

// stopAWorker stops a worker until others work on its partitions, and lets it go
// on: it writes once more with its old token. What the leader heard of that just
// before another one is elected is not told: then it is the next worker's turn.
func (s *scene) stopAWorker() {
	for _, w := range s.c.Workers {
		w.StandStill()
		live.Await(s.t, time.Minute, "the others work on all partitions", func() error {
			got, err := s.p.Query(`sum(leasehold_worker_callbacks_running{instance!="` + w.HTTP + `"}) == 48`)
			if err == nil && len(got) == 0 {
				err = errors.New("not yet")
			}
			return err
		})
		w.GoOn()
		told := live.Within(20*time.Second, func() error {
			now, err := s.p.Firing()
			if err == nil && !slices.Contains(now, "LeaseholdStaleWriters") {
				err = fmt.Errorf("firing: %q", now)
			}
			return err
		})
		if told == nil {
			return
		}
	}
}

func (s *scene) endWorkers() {
	for _, w := range s.c.Workers {
		w.Terminate()
	}
}

func (s *scene) startWorkers() {
	for _, w := range s.c.Workers {
		w.Start()
	}
}

// flap restarts workers one after the other until the alert fires.
func (s *scene) flap() {
	ctx, enough := context.WithTimeout(s.t.Context(), 3*time.Minute)
	defer enough()
	for i := 0; ctx.Err() == nil; i++ {
		w := s.c.Workers[i%2]
		w.Terminate()
		w.Start()
		live.Await(s.t, time.Minute, w.ID+" has partitions", func() error {
			held, err := s.c.Held(w.ID)
			if err == nil && held == 0 {
				err = errors.New("none")
			}
			return err
		})
		if now, err := s.p.Firing(); err == nil && slices.Contains(now, "LeaseholdMoveStorm") {
			return
		}
	}
}

// killServers kills all but one, the leader among them.
func (s *scene) killServers() {
	leader := s.c.Leader()
	s.killed = []*live.Server{leader}
	for _, other := range s.c.Servers {
		if other != leader && len(s.killed) < 2 {
			s.killed = append(s.killed, other)
		}
	}
	for _, k := range s.killed {
		k.Kill()
	}
}

func (s *scene) startServers() {
	for _, k := range s.killed {
		k.Start()
	}
}

// worded holds that what fires reaches people in whole sentences: templates of
// every alert that has fired were filled in.
func (s *scene) worded() {
	s.t.Helper()
	alerts, err := s.p.Alerts()
	if err != nil {
		s.t.Fatal(err)
	}
	for _, a := range alerts {
		if text := fmt.Sprint(a.Annotations); strings.Contains(text, "<error") || strings.Contains(text, "{{") {
			s.t.Errorf("%s says %s", a.Labels["alertname"], text)
		}
		if a.Labels["cluster"] != live.ClusterLabel {
			s.t.Errorf("%s does not say of which cluster: %v", a.Labels["alertname"], a.Labels)
		}
	}
}

// proven holds what the whole scene must have shown: the stopped worker's lost
// leases were told of, every server's audit has looked, and found nothing.
func (s *scene) proven() {
	s.t.Helper()
	fired, err := s.p.Query(`count by (alertname) (count_over_time(ALERTS{alertstate="firing"}[1h]))`)
	if err != nil {
		s.t.Fatal(err)
	}
	var names []string
	for _, f := range fired {
		names = append(names, f.Labels["alertname"])
	}
	slices.Sort(names)
	s.t.Logf("fired in all: %q", names)
	if !slices.Contains(names, "LeaseholdLeasesLost") {
		s.t.Error("LeaseholdLeasesLost has not fired, though a worker was stopped until others had its partitions")
	}
	for _, never := range []string{"LeaseholdDoubleOwnership", "LeaseholdTokenRegression", "LeaseholdStoragePoisoned"} {
		if slices.Contains(names, never) {
			s.t.Errorf("%s has fired", never)
		}
	}
	live.Await(s.t, time.Minute, "every server has audited leases", func() error {
		audited, err := s.p.Query(`count(max_over_time(leasehold_audit_intervals_checked_total[1h]) > 0)`)
		if err == nil && (len(audited) != 1 || audited[0].Value != float64(len(s.c.Servers))) {
			err = fmt.Errorf("%v", audited)
		}
		return err
	})
}
