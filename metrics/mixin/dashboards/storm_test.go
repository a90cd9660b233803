package dashboards

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-dev/leasehold/metrics/mixin/live"
	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
)

// partitions of the keyspace in the storm.
const partitions = 48

// storm is what happens to a cluster of three servers and three workers while
// Prometheus looks on: everything that the dashboards are there to show.
func storm(t *testing.T, c *live.Cluster, p *live.Prometheus) {
	step := func(what string, f func()) {
		begin := time.Now()
		f()
		t.Logf("%-32s %4.1f s", what, time.Since(begin).Seconds())
	}
	w1, w2, w3 := c.Workers[0], c.Workers[1], c.Workers[2]
	step("a keyspace that nobody works on", func() { createSpare(t, c) })
	step("keys are written and watched", func() { useKeys(t, c) })
	step("a backup is saved", func() { backup(t, c) })
	step("a fourth worker joins", func() {
		c.AddWorker("w4")
		p.Follow()
		awaitData(t, p, "it is there", `leasehold_sessions{state="active"} == 4`)
	})
	step("a worker stands still", func() {
		for _, w := range []*live.Worker{w3, w2, w1} {
			if refused(t, p, w) == nil {
				return
			}
		}
		t.Error("no late write was refused and counted")
	})
	step("a worker is drained", func() {
		drain(t, c, w1.ID)
		awaitData(t, p, "it holds nothing", fmt.Sprintf(`leasehold_worker_partitions_held{instance="%s"} == 0`, w1.HTTP))
	})
	step("a worker is killed", func() {
		w2.Kill()
		awaitData(t, p, "others work on its partitions", othersWorkOnAll(w2))
	})
	step("a worker leaves", func() { w3.Terminate() })
	step("the leader is killed", func() {
		leader := c.Leader()
		leader.Kill()
		awaitData(t, p, "another leads", fmt.Sprintf(`sum(leasehold_raft_is_leader{instance!="%s"}) == 1`, leader.HTTP))
		leader.Start()
		awaitData(t, p, "all servers are ready", `sum(leasehold_raft_has_leader) == 3`)
		c.AwaitOwned(time.Minute)
	})
}

func othersWorkOnAll(w *live.Worker) string {
	return fmt.Sprintf(`sum(leasehold_worker_callbacks_running{instance!="%s"}) == %d`, w.HTTP, partitions)
}

// refused has a worker stand still until others own what it had; then its late
// writes are refused and the servers hear of it, and Prometheus of when its handlers
// stopped, before anything else happens to it. What happens just before the leader
// changes the servers may not hear of.
func refused(t *testing.T, p *live.Prometheus, w *live.Worker) error {
	t.Helper()
	w.StandStill()
	awaitData(t, p, "others work on its partitions", othersWorkOnAll(w))
	w.GoOn()
	heard := `sum(leasehold_fencing_rejections_total{reason="stale_token"}) > 0 and sum(leasehold_leases_lost_total) > 0`
	stopped := fmt.Sprintf(`sum(increase(leasehold_worker_stop_duration_seconds_count{instance="%s"}[1m])) > 0`, w.HTTP)
	return live.Within(30*time.Second, hasData(p, heard+" and "+stopped))
}

// awaitData waits until a query has an answer.
func awaitData(t *testing.T, p *live.Prometheus, what, expr string) {
	t.Helper()
	live.Await(t, time.Minute, what, hasData(p, expr))
}

func hasData(p *live.Prometheus, expr string) func() error {
	return func() error {
		samples, err := p.Query(expr)
		if err == nil && len(samples) == 0 {
			err = errors.New("no data: " + expr)
		}
		return err
	}
}

// spare is a keyspace whose partitions stay without an owner.
const spare = "spare"

func createSpare(t *testing.T, c *live.Cluster) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	_, err := c.Client().Keyspaces().CreateKeyspace(ctx, &leaseholdv1.CreateKeyspaceRequest{Name: spare, Partitions: 4, TtlMs: live.TTL.Milliseconds()})
	if err != nil {
		t.Fatal(err)
	}
}

// useKeys puts, reads and watches keys through the JSON form of etcd's API, and
// asks for what must be refused.
func useKeys(t *testing.T, c *live.Cluster) {
	t.Helper()
	name := base64.StdEncoding.EncodeToString([]byte("storm"))
	url := "http://" + c.Servers[0].HTTP + "/v3/"
	resp := post(t, url+"watch", fmt.Sprintf(`{"create_request": {"key": %q}}`, name), http.StatusOK)
	t.Cleanup(func() { _ = resp.Body.Close() }) // the watch lasts as long as the storm
	for i := range 20 {
		_ = post(t, url+"kv/put", fmt.Sprintf(`{"key": %q, "value": %q}`, name, base64.StdEncoding.EncodeToString(fmt.Append(nil, i))), http.StatusOK).Body.Close()
	}
	_ = post(t, url+"kv/range", fmt.Sprintf(`{"key": %q}`, name), http.StatusOK).Body.Close()
	_ = post(t, url+"kv/compaction", `{"revision": "1000000"}`, http.StatusBadRequest).Body.Close()
}

// post asks again while the servers have no leader.
func post(t *testing.T, url, body string, want int) (resp *http.Response) {
	t.Helper()
	live.Await(t, 30*time.Second, "answer of "+url, func() error {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		if resp, err = http.DefaultClient.Do(req); err != nil { //nolint:bodyclose // the callers close it
			t.Fatal(err)
		}
		if resp.StatusCode == http.StatusServiceUnavailable {
			_ = resp.Body.Close()
			return errors.New(resp.Status)
		}
		return nil
	})
	if resp.StatusCode != want {
		t.Fatalf("post %s: %s", url, resp.Status)
	}
	return resp
}

func backup(t *testing.T, c *live.Cluster) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), live.Binary(t), "backup", "save", filepath.Join(t.TempDir(), "backup"), "--server", c.Addrs())
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("backup save: %v\n%s", err, out)
	}
}

func drain(t *testing.T, c *live.Cluster, id string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if _, err := c.Client().Workers().DrainWorker(ctx, &leaseholdv1.DrainWorkerRequest{Id: id}); err != nil {
		t.Fatal(err)
	}
}
