package rules

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// caseFile is what of promtool's format the cases use.
type caseFile struct {
	Tests []struct {
		Name  string       `yaml:"name"` // of the alert
		Exprs []expression `yaml:"promql_expr_test"`
	} `yaml:"tests"`
}

// expression is asked for at a time, with what is expected.
type expression struct {
	Expr    string `yaml:"expr"`
	Samples []struct {
		Labels string `yaml:"labels"`
	} `yaml:"exp_samples"`
}

func caseFiles(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "tests", "*.yml"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	return files
}

func readCases(t *testing.T) []caseFile {
	t.Helper()
	var all []caseFile
	for _, file := range caseFiles(t) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var f caseFile
		if err := yaml.Unmarshal(text, &f); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		all = append(all, f)
	}
	return all
}

// looksAtAll matches an expression that shows every alert that fires.
var looksAtAll = regexp.MustCompile(`^count by \([^)]+\) \(ALERTS\{alertstate="firing"(, cluster="a")?\}\)$`)

// untested lists which alert has no case in which it fires, and which has none
// in which it does not, and which recording rule nobody asks for.
func untested(files []caseFile, groups []Group) (missing []string) {
	fires, quiet, asked := map[string]bool{}, map[string]bool{}, ""
	for _, f := range files {
		for _, c := range f.Tests {
			for _, e := range c.Exprs {
				if !looksAtAll.MatchString(e.Expr) {
					asked += e.Expr
					continue
				}
				silent := true
				for _, s := range e.Samples {
					if strings.Contains(s.Labels, `alertname="`+c.Name+`"`) {
						fires[c.Name], silent = true, false
					}
				}
				quiet[c.Name] = quiet[c.Name] || silent
			}
		}
	}
	for _, g := range groups {
		for _, a := range g.Alerts {
			if !fires[a.Name] {
				missing = append(missing, a.Name+" fires")
			}
			if !quiet[a.Name] {
				missing = append(missing, a.Name+" is quiet")
			}
		}
		for _, r := range g.Records {
			if !strings.Contains(asked, r.Name) {
				missing = append(missing, r.Name)
			}
		}
	}
	return missing
}

// Every alert fires in one case and not in another, as promtool says, and every
// recording rule has a case of its own.
func TestCasesOfPromtool(t *testing.T) {
	cases := readCases(t)
	if missing := untested(cases, Groups()); len(missing) > 0 {
		t.Errorf("deploy/prometheus/tests has no case for: %q", missing)
	}
	if out, err := promtool(t, append([]string{"test", "rules"}, caseFiles(t)...)...); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	// A rule without any case is missed.
	more := append(Groups(), Group{Alerts: []Alert{{Name: "LeaseholdNew"}}, Records: []Record{{Name: "level:new:rate"}}})
	if got := untested(cases, more); len(got) != 3 {
		t.Errorf("of a new alert and a new record without cases only %q is noticed", got)
	}
}

// The cases notice every alert that does not fire any more.
func TestCasesNoticeSilence(t *testing.T) {
	dir := t.TempDir()
	silent := regexp.MustCompile(`(?m)(- alert: \w+\n +expr: \|-\n)(?:          .*\n)+`).
		ReplaceAllString(string(Write(1)), "${1}          vector(0) > 1\n")
	if err := os.WriteFile(filepath.Join(dir, "leasehold.rules.yml"), []byte(silent), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"test", "rules"}
	for _, file := range caseFiles(t) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		copied := filepath.Join(dir, "tests", filepath.Base(file))
		if err := os.MkdirAll(filepath.Dir(copied), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(copied, text, 0o600); err != nil {
			t.Fatal(err)
		}
		args = append(args, copied)
	}
	out, err := promtool(t, args...)
	if err == nil {
		t.Fatal("promtool is content with alerts that never fire")
	}
	for _, a := range Alerts() {
		if !regexp.MustCompile(`exp: .*alertname="` + a.Name + `"`).MatchString(out) {
			t.Errorf("nobody notices that %s never fires", a.Name)
		}
	}
}
