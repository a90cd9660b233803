package dashboards

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// family is a metric as metrics/testdata/series.golden has it.
type family struct {
	kind   string              // counter, gauge, histogram
	labels map[string][]string // values that it can have; nil for any
}

// targetLabels are on every series: Prometheus and its configuration set them.
var targetLabels = []string{"cluster", "instance", "job"}

// families reads the golden file and adds what is not ours: process and runtime
// figures, and what Prometheus makes itself.
func families(t *testing.T) map[string]family {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "metrics/testdata/series.golden"))
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]family{
		"up":                            {kind: "gauge"},
		"ALERTS":                        {kind: "gauge", labels: map[string][]string{"alertname": nil, "alertstate": {"firing", "pending"}, "severity": nil}},
		"go_goroutines":                 {kind: "gauge"},
		"go_memstats_heap_alloc_bytes":  {kind: "gauge"},
		"process_cpu_seconds_total":     {kind: "counter"},
		"process_resident_memory_bytes": {kind: "gauge"},
		"process_open_fds":              {kind: "gauge"},
		"process_max_fds":               {kind: "gauge"},
		"process_start_time_seconds":    {kind: "gauge"},
	}
	head := regexp.MustCompile(`^(leasehold_\w+) (counter|gauge|histogram)`)
	label := regexp.MustCompile(`^  (\w+): (.+)$`)
	var names []string // of the metric that is being read
	for line := range strings.Lines(string(text)) {
		line = strings.TrimRight(line, "\n")
		if m := head.FindStringSubmatch(line); m != nil {
			names = []string{m[1]}
			if m[2] == "histogram" {
				names = []string{m[1] + "_bucket", m[1] + "_sum", m[1] + "_count"}
			}
			for _, name := range names {
				all[name] = family{kind: m[2], labels: make(map[string][]string)}
			}
			if m[2] == "histogram" {
				all[m[1]+"_bucket"].labels["le"] = nil
			}
		} else if m := label.FindStringSubmatch(line); m != nil {
			values := strings.Split(m[2], ", ")
			if m[2] == "…" || m[1] == "keyspace" || m[1] == "version" || m[1] == "revision" {
				values = nil
			}
			for _, name := range names {
				all[name].labels[m[1]] = values
			}
		}
	}
	if len(all) < 60 {
		t.Fatalf("the golden file has only %d series", len(all))
	}
	return all
}
