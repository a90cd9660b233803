package rules

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-dev/leasehold/metrics/mixin/live"
)

// The committed files are what the generator makes.
func TestFilesAreGenerated(t *testing.T) {
	files, err := Files()
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range files {
		got, err := os.ReadFile(filepath.Join(folder, name))
		if err != nil || string(got) != string(want) {
			t.Errorf("%s/%s is not what the generator makes (%v): run make generate", Folder, name, err)
		}
	}
}

func TestPrometheusTakesTheRules(t *testing.T) {
	for _, factor := range []int{1, 60} {
		file := filepath.Join(t.TempDir(), "rules.yml")
		if err := os.WriteFile(file, Write(factor), 0o600); err != nil {
			t.Fatal(err)
		}
		if out, err := promtool(t, "check", "rules", "--lint=all", "--lint-fatal", file); err != nil {
			t.Errorf("factor %d: %v\n%s", factor, err, out)
		}
	}
}

func TestAlertsAreComplete(t *testing.T) {
	names := map[string]bool{}
	for _, a := range Alerts() {
		if names[a.Name] || !regexp.MustCompile(`^Leasehold[A-Z]\w+$`).MatchString(a.Name) {
			t.Errorf("%s: a second one, or no name with the prefix Leasehold", a.Name)
		}
		names[a.Name] = true
		if !slices.Contains([]string{Critical, Warning, Info}, a.Severity) {
			t.Errorf("%s has severity %q", a.Name, a.Severity)
		}
		if a.Summary == "" || strings.HasSuffix(a.Summary, ".") || !strings.HasSuffix(a.Description, ".") {
			t.Errorf("%s: want a summary without a full stop, and whole sentences to describe it", a.Name)
		}
		// An alert per server or keyspace says which one.
		for _, label := range []string{"instance", "keyspace", "reason", "api", "kind"} {
			per := regexp.MustCompile(`by \([^)]*\b` + label + `\b[^)]*\)`)
			outer, _, _ := strings.Cut(a.Expr, "\n")
			if per.MatchString(outer) && !strings.Contains(outer, "count by (cluster) (") && !strings.Contains(a.Description, "$labels."+label) {
				t.Errorf("%s does not say of which %s", a.Name, label)
			}
		}
	}
}

// Durations are divided and nothing else is.
func TestTimesAreScaled(t *testing.T) {
	const e = `rate(x[$5m]) > 300 and time() - y < $(10m) or z offset $1h`
	for factor, want := range map[int]string{
		1:  `rate(x[5m]) > 300 and time() - y < 600 or z offset 1h`,
		60: `rate(x[5s]) > 300 and time() - y < 10 or z offset 1m`,
		40: `rate(x[7500ms]) > 300 and time() - y < 15 or z offset 90s`,
	} {
		if got := expr(e, factor); got != want {
			t.Errorf("factor %d: %s", factor, got)
		}
	}
	if text := string(Write(1)); strings.Contains(strings.ReplaceAll(strings.ReplaceAll(text, "$value", ""), "$labels", ""), "$") {
		t.Error("a duration is left as it was written")
	}
	for _, a := range Alerts() {
		if a.For%time.Second != 0 {
			t.Errorf("%s waits for %v", a.Name, a.For)
		}
	}
}

// family is a line of the golden file with the values of its labels.
type family struct {
	histogram bool
	labels    map[string][]string
}

// families are all series there are.
func families(t *testing.T) map[string]family {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "metrics/testdata/series.golden"))
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]family{}
	var last family
	for line := range strings.Lines(string(text)) {
		if m := regexp.MustCompile(`^(leasehold_\w+) (\w+)`).FindStringSubmatch(line); m != nil {
			last = family{m[2] == "histogram", map[string][]string{}}
			all[m[1]] = last
		} else if m := regexp.MustCompile(`^  (\w+): (.*)`).FindStringSubmatch(line); m != nil {
			last.labels[m[1]] = strings.Split(m[2], ", ")
		}
	}
	return all
}

var selector = regexp.MustCompile(`(^|[^\w:])(leasehold_\w+)(\{([^}]*)\})?`)

// strangers lists what an expression asks for and nobody counts.
func strangers(expr string, all map[string]family) []string {
	var found []string
	for _, m := range selector.FindAllStringSubmatch(expr, -1) {
		f, ok := all[m[2]]
		for _, part := range []string{"_bucket", "_count", "_sum"} {
			if base, cut := strings.CutSuffix(m[2], part); cut && all[base].histogram {
				f, ok = all[base], true
			}
		}
		if !ok {
			found = append(found, m[2])
			continue
		}
		for _, l := range regexp.MustCompile(`(\w+)(=~|!~|!=|=)"([^"]*)"`).FindAllStringSubmatch(m[4], -1) {
			for _, value := range strings.Split(l[3], "|") {
				if !slices.Contains(f.labels[l[1]], value) {
					found = append(found, m[2]+"{"+l[1]+"="+value+"}")
				}
			}
		}
	}
	return found
}

// No rule asks for a series, a label or a value that is not there, and none
// for a recorded one that is not recorded.
func TestSeriesExist(t *testing.T) {
	all := families(t)
	recorded := map[string]bool{}
	var exprs []string
	for _, g := range Groups() {
		for _, r := range g.Records {
			recorded[r.Name] = true
			exprs = append(exprs, r.Expr)
		}
		for _, a := range g.Alerts {
			exprs = append(exprs, a.Expr)
		}
	}
	for _, e := range exprs {
		if found := strangers(e, all); len(found) > 0 {
			t.Errorf("%s\nasks for %q", e, found)
		}
		for _, m := range regexp.MustCompile(`\w+:leasehold_\w+:\w+`).FindAllString(e, -1) {
			if !recorded[m] {
				t.Errorf("%s\nasks for %s, which no rule records", e, m)
			}
		}
	}
	for e, want := range map[string]int{
		`leasehold_partitions{state="unowned"}`:                  0,
		`leasehold_partitions{state=~"unowned|lost"}`:            1,
		`rate(leasehold_partitions_bucket[$5m])`:                 1,
		`rate(leasehold_takeover_duration_seconds_bucket[$5m])`:  0,
		`leasehold_never{a="b"} / on (cluster) leasehold_either`: 2,
	} {
		if got := strangers(e, all); len(got) != want {
			t.Errorf("%s: found %q", e, got)
		}
	}
}

// The scrape configuration beside the rules loads them, and gives its jobs the
// names that they and the tests' own configuration go by.
func TestScrapeConfiguration(t *testing.T) {
	file := filepath.Join(folder, "prometheus.yml")
	out, err := promtool(t, "check", "config", "--lint=all", "--lint-fatal", file)
	if err != nil || !strings.Contains(out, "leasehold.rules.yml") {
		t.Errorf("%v\n%s", err, out)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{live.ServerJob, live.WorkerJob} {
		if !strings.Contains(string(text), "job_name: "+name+"\n") {
			t.Errorf("%s has no job %s", file, name)
		}
	}
	if job != `job="`+live.ServerJob+`"` {
		t.Errorf("the rules go by %s", job)
	}
}
