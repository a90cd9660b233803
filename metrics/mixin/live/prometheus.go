package live

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// PrometheusOptions of a private Prometheus. The zero value of a field is its
// default.
type PrometheusOptions struct {
	// Scrape is how often targets are scraped and rules evaluated: 500ms.
	Scrape time.Duration
	// Rules are files with rules; their groups should name no interval.
	Rules []string
	// NoClusterLabel leaves out the label cluster, which is Label else.
	NoClusterLabel bool
}

// ClusterLabel is the value of the label cluster of every series.
const ClusterLabel = "live"

// Jobs of the scrape configuration.
const (
	ServerJob = "leasehold-server"
	WorkerJob = "leasehold-worker"
)

// Prometheus is a process that scrapes a cluster.
type Prometheus struct {
	*Process
	// URL is where its API is, without a slash at the end.
	URL string

	cluster *Cluster
	dir     string
	options PrometheusOptions
}

// StartPrometheus starts a Prometheus for a cluster and waits until it has
// scraped every server. It ends with the test.
func StartPrometheus(tb testing.TB, c *Cluster, o PrometheusOptions) *Prometheus {
	tb.Helper()
	program := Need(tb, "prometheus")
	if o.Scrape == 0 {
		o.Scrape = 500 * time.Millisecond
	}
	addr := FreePorts(tb, 1)[0]
	p := &Prometheus{cluster: c, dir: tempDir(tb), URL: "http://" + addr, options: o}
	p.write("prometheus.yml", p.config())
	p.Follow()
	p.Process = newProcess(tb, p.dir, "prometheus", program, "--config.file", filepath.Join(p.dir, "prometheus.yml"),
		"--storage.tsdb.path", filepath.Join(p.dir, "data"), "--web.listen-address", addr, "--log.level", "warn")
	p.Start()
	Await(tb, 30*time.Second, "Prometheus has scraped every server", func() error {
		samples, err := p.Query(`up{job="` + ServerJob + `"} == 1`)
		if err == nil && len(samples) != len(c.Servers) {
			err = fmt.Errorf("%d of %d servers", len(samples), len(c.Servers))
		}
		return err
	})
	return p
}

// config is JSON, which is YAML too.
func (p *Prometheus) config() any {
	type object = map[string]any
	every := p.options.Scrape.String()
	labels := object{"cluster": ClusterLabel}
	if p.options.NoClusterLabel {
		labels = object{}
	}
	var servers []string
	for _, s := range p.cluster.Servers {
		servers = append(servers, s.HTTP)
	}
	var rules []string
	for _, file := range p.options.Rules {
		abs, err := filepath.Abs(file)
		if err != nil {
			p.cluster.tb.Fatal(err)
		}
		rules = append(rules, abs)
	}
	return object{
		"global":     object{"scrape_interval": every, "scrape_timeout": every, "evaluation_interval": every},
		"rule_files": rules,
		"scrape_configs": []object{
			{"job_name": ServerJob, "static_configs": []object{{"targets": servers, "labels": labels}}},
			{"job_name": WorkerJob, "file_sd_configs": []object{{"files": []string{filepath.Join(p.dir, "workers.json")}, "refresh_interval": "1s"}},
				"relabel_configs": relabel(labels)},
		},
	}
}

// relabel gives every target of a job labels.
func relabel(labels map[string]any) []map[string]any {
	var all []map[string]any
	for name, value := range labels {
		all = append(all, map[string]any{"target_label": name, "replacement": value})
	}
	return all
}

func (p *Prometheus) write(name string, v any) {
	p.cluster.tb.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		p.cluster.tb.Fatal(err)
	}
	// Whole or not at all: Prometheus reads it when it changes.
	file := filepath.Join(p.dir, name)
	if err := os.WriteFile(file+".new", b, 0o600); err != nil {
		p.cluster.tb.Fatal(err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		p.cluster.tb.Fatal(err)
	}
}

// Follow tells Prometheus of workers that were added since it was started.
func (p *Prometheus) Follow() {
	p.cluster.tb.Helper()
	targets := []string{}
	for _, w := range p.cluster.Workers {
		targets = append(targets, w.HTTP)
	}
	p.write("workers.json", []map[string]any{{"targets": targets}})
}

// Firing lists the names of the alerts that fire, each once, in order.
func (p *Prometheus) Firing() ([]string, error) { return p.alerts("firing") }

// Active lists the names of the alerts that fire or are pending.
func (p *Prometheus) Active() ([]string, error) { return p.alerts("firing", "pending") }

func (p *Prometheus) alerts(states ...string) ([]string, error) {
	list, err := p.Alerts()
	if err != nil {
		return nil, err
	}
	var names []string
	for _, a := range list {
		if slices.Contains(states, a.State) {
			names = append(names, a.Labels["alertname"])
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// AwaitFiring waits until all alerts of these names fire.
func (p *Prometheus) AwaitFiring(tb testing.TB, within time.Duration, names ...string) {
	tb.Helper()
	Await(tb, within, strings.Join(names, ", ")+" firing", func() error {
		now, err := p.Firing()
		for _, name := range names {
			if err == nil && !slices.Contains(now, name) {
				err = fmt.Errorf("firing: %q", now)
			}
		}
		return err
	})
}

// AwaitQuiet waits until none of these alerts fires; without names, none at
// all.
func (p *Prometheus) AwaitQuiet(tb testing.TB, within time.Duration, names ...string) {
	tb.Helper()
	Await(tb, within, "quiet: "+strings.Join(names, ", "), func() error {
		now, err := p.Firing()
		if err != nil {
			return err
		}
		for _, name := range now {
			if len(names) == 0 || slices.Contains(names, name) {
				return fmt.Errorf("firing: %q", now)
			}
		}
		return nil
	})
}
