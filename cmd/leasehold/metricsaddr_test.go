package main

import (
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// workerSeries is the promise of package metrics for one worker, with what Go
// and the process add.
const workerSeries = 120

// scrape reads what a worker's metrics port shows: each sample, as a line.
func scrape(t *testing.T, url string) (samples []string) {
	t.Helper()
	client := &http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true}}
	r, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil || r.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s, %v\n%s", url, r.Status, err, body)
	}
	for line := range strings.Lines(string(body)) {
		if !strings.HasPrefix(line, "#") {
			samples = append(samples, strings.TrimSpace(line))
		}
	}
	return samples
}

// Each command that is a worker shows what it holds, and closes the port when it ends.
func TestWorkersShowTheirFigures(t *testing.T) {
	t.Parallel()
	f := newField(t, 1)
	f.want(exitOK, "keyspace", "create", "singleton", "--partitions", "1", "--ttl", "2s", "--initial-delay", "0s")
	shown := []string{"--metrics-addr", "127.0.0.1:0", "--server", f.server}
	logged := append(slices.Clone(shown), "--log-level", "info", "--log-format", "text")
	begun := filepath.Join(t.TempDir(), "begun") // a shell that has set its trap
	for what, args := range map[string][]string{
		"run":        append(append([]string{"run", "--keyspace", f.keyspace}, logged...), "--", "sleep", "3600"),
		"hold":       append(append([]string{"hold", "singleton"}, logged...), "--", "sh", "-c", "trap 'exit 0' TERM; : >"+begun+"; while :; do sleep 0.05; done"),
		"demo relay": append([]string{"demo", "relay", "--id", "r1", "--partitions", "1", "--dir", filepath.Join(t.TempDir(), "orders")}, shown...),
	} {
		p := startProgram(t, args...)
		var url string
		f.until(what+" names its port", func() bool {
			url = regexp.MustCompile(`http://127\.0\.0\.1:\d+/metrics`).FindString(p.stderr.String())
			return url != ""
		})
		f.until(what+" shows the partition it holds", func() bool {
			return slices.Contains(scrape(t, url), "leasehold_worker_partitions_held 1")
		})
		samples := scrape(t, url)
		for _, want := range []string{`leasehold_worker_keep_alives_total{outcome="ok"} `, "go_goroutines ", "process_start_time_seconds "} {
			if !slices.ContainsFunc(samples, func(s string) bool { return strings.HasPrefix(s, want) }) {
				t.Errorf("%s: no %s in\n%s", what, want, strings.Join(samples, "\n"))
			}
		}
		if len(samples) > workerSeries {
			t.Errorf("%s: %d series, at most %d", what, len(samples), workerSeries)
		}
		if what == "hold" {
			f.until("its command has begun", func() bool { _, err := os.Stat(begun); return err == nil })
		}
		p.stop(t)
		if c, err := net.Dial("tcp", strings.TrimSuffix(strings.TrimPrefix(url, "http://"), "/metrics")); err == nil {
			c.Close()
			t.Errorf("%s: its port is open after the end", what)
		}
	}
}

func TestMetricsAddrIsRefused(t *testing.T) {
	t.Parallel()
	f := newField(t, 1)
	for _, bad := range []string{"9400", "localhost", "127.0.0.1:", "127.0.0.1:99999", "127.0.0.1:-1"} {
		_, errOut := f.want(exitUsage, "run", "--keyspace", f.keyspace, "--metrics-addr", bad, "--", "true")
		if !strings.Contains(errOut, "--metrics-addr") || !strings.Contains(errOut, "want host:port") {
			t.Errorf("%q: %s", bad, errOut)
		}
	}
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	_, errOut := f.want(exitFailed, "run", "--keyspace", f.keyspace, "--metrics-addr", taken.Addr().String(), "--", "true")
	if !strings.Contains(errOut, taken.Addr().String()) || !strings.Contains(errOut, "a port of its own") {
		t.Errorf("taken: %s", errOut)
	}
}
