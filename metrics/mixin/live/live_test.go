package live

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	code := m.Run()
	Clean()
	if err := goleak.Find(); code == 0 && err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// What the other tests of this module stand on: both jobs are scraped, a new
// worker is found, the end of a server is seen, and a writer that was stopped
// past its TTL is refused by the guard and told of by the servers' series.
func TestPrometheusSeesTheCluster(t *testing.T) {
	Need(t, "prometheus")
	c := Start(t, Options{Workers: 2, Partitions: 16})
	rules := t.TempDir() + "/rules.yml"
	if err := os.WriteFile(rules, []byte(`groups: [{name: test, rules: [{alert: ServerDown, expr: 'up{job="leasehold-server"} == 0'}]}]`), 0o600); err != nil {
		t.Fatal(err)
	}
	p := StartPrometheus(t, c, PrometheusOptions{Rules: []string{rules}})

	c.AddWorker("w3")
	p.Follow()
	await := func(what, expr string, want float64) {
		t.Helper()
		Await(t, time.Minute, what, func() error {
			got, err := p.Query(expr)
			if err == nil && (len(got) != 1 || got[0].Value != want) {
				err = fmt.Errorf("%s is %v, not %v", expr, got, want)
			}
			return err
		})
	}
	await("three workers scraped", `sum by (cluster) (up{job="leasehold-worker", cluster="live"})`, 3)
	c.AwaitOwned(time.Minute)
	await("all partitions held", `sum(leasehold_worker_partitions_held)`, 16)
	if series, points, err := p.QueryRange("up", time.Now().Add(-10*time.Second), time.Now(), time.Second); err != nil || series != 6 || points < 6 {
		t.Errorf("%d series with %d points, %v", series, points, err)
	}
	if _, err := p.Query("up{"); err == nil {
		t.Error("a query that does not parse has an answer")
	}

	// What a leader has heard of just before another one is elected is not told.
	told := errors.New("nobody stood still")
	for _, w := range slices.Backward(c.Workers) {
		w.StandStill()
		await("others have taken over", `sum(leasehold_worker_callbacks_running{instance!="`+w.HTTP+`"})`, 16)
		w.GoOn()
		told = Within(20*time.Second, func() error {
			got, err := p.Query(`sum(leasehold_fencing_rejections_total{job="leasehold-server", reason="stale_token"}) > 0`)
			if err == nil && len(got) == 0 {
				err = errors.New("none")
			}
			return err
		})
		if told == nil {
			break
		}
	}
	if told != nil {
		t.Fatalf("the servers do not tell of a refused write: %v", told)
	}

	down := c.Servers[slices.IndexFunc(c.Servers, func(s *Server) bool { return s != c.Leader() })]
	down.Kill()
	p.AwaitFiring(t, time.Minute, "ServerDown")
	down.Start()
	p.AwaitQuiet(t, time.Minute)
	if all, err := p.Rules(); err != nil || len(all) != 1 || all[0].Health != "ok" {
		t.Errorf("rules %v, %v", all, err)
	}
}
