package main

import (
	"strings"
	"testing"
	"time"
)

const said = `{"config":{"go_version":"go1.26.8"}}
{"osv":{"id":"GO-2026-0001","summary":"bad"}}{"osv":{"id":"GO-2026-0002","summary":"worse"}}
{"finding":{"osv":"GO-2026-0001","fixed_version":"v1.2.0","trace":[{"module":"example.com/m","version":"v1.0.0"}]}}
{"finding":{"osv":"GO-2026-0001","fixed_version":"v1.2.0","trace":[{"module":"example.com/m","version":"v1.0.0","package":"example.com/m","function":"Bad"},{"module":"us","package":"us/pkg","receiver":"T","function":"Call"}]}}
{"finding":{"osv":"GO-2026-0002","trace":[{"module":"example.com/m","version":"v1.0.0","package":"example.com/m"}]}}
`

func TestJudge(t *testing.T) {
	found, goVersion, err := parseFindings(strings.NewReader(said))
	if err != nil || goVersion != "go1.26.8" || len(found) != 2 {
		t.Fatal(found, goVersion, err)
	}
	var out strings.Builder
	err = judge(&out, found, map[string]allowance{})
	if err == nil || !strings.Contains(out.String(), "CALLED       GO-2026-0001 in example.com/m@v1.0.0, fixed in v1.2.0: bad") ||
		!strings.Contains(out.String(), "us/pkg.T.Call") || !strings.Contains(out.String(), "not called   GO-2026-0002") {
		t.Errorf("%v:\n%s", err, out.String())
	}
	if err := judge(&out, found, map[string]allowance{"GO-2026-0001": {"2027-01-01", "no fix"}}); err != nil {
		t.Errorf("what is allowed fails: %v", err)
	}
	if err := judge(&out, found, map[string]allowance{"GO-2026-0001": {}, "GO-2026-0002": {}}); err != nil && strings.Contains(err.Error(), "0001") || err == nil {
		t.Errorf("what is allowed and not called: %v", err)
	}
	if _, _, err := parseFindings(strings.NewReader("")); err == nil {
		t.Error("a scanner that says nothing has found nothing")
	}
}

func TestAllowed(t *testing.T) {
	now := time.Date(2026, 12, 1, 10, 0, 0, 0, time.UTC)
	got, err := parseAllowed("# none\n\nGO-2026-0001 2026-12-01 no release has the fix\n", now)
	if err != nil || got["GO-2026-0001"].reason != "no release has the fix" {
		t.Error(got, err)
	}
	for _, bad := range []string{"GO-2026-0001", "GO-2026-0001 2026-12-01", "GO-2026-0001 soon because", "CVE-1 2026-12-01 because", "GO-2026-0001 2026-11-30 too late"} {
		if _, err := parseAllowed(bad, now); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}
