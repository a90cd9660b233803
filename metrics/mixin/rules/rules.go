package rules

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Severities of alerts.
const (
	Critical = "critical" // somebody should look now
	Warning  = "warning"  // somebody should look today
	Info     = "info"     // somebody should know
)

// RunbookURL is what the pages' addresses begin with.
const RunbookURL = "https://github.com/leasehold-dev/leasehold/blob/main/deploy/prometheus/runbooks/"

// Group is evaluated as one.
type Group struct {
	Name    string
	Records []Record
	Alerts  []Alert
}

// Record is a recording rule, named level:metric:operations.
type Record struct {
	Name, Expr string
}

// Alert is an alerting rule.
type Alert struct {
	// Name is also that of its runbook.
	Name string
	// Expr is in PromQL, with durations as the package comment says.
	Expr string
	// For is how long the expression must hold; 0: once is enough.
	For      time.Duration
	Severity string
	// Summary is a line, Description says what was measured. Both are templates.
	Summary, Description string
}

// Runbook is the address of the alert's page.
func (a Alert) Runbook() string { return RunbookURL + a.Name + ".md" }

// Groups are all rules, in the order of the file.
func Groups() []Group {
	return []Group{ownership(), workers(), servers(), gossip(), api(), access()}
}

// Alerts are the alerts of all groups.
func Alerts() []Alert {
	var all []Alert
	for _, g := range Groups() {
		all = append(all, g.Alerts...)
	}
	return all
}

// event is an expression that holds when a counter has risen within a window,
// added up as sum says: with sum by (cluster), or max by (cluster) where every
// server counts the same. The counter of a process that was not there before
// begins with what it has: increase would miss that.
func event(sum, selector, window string) string {
	return strings.NewReplacer("SELECTOR", selector, "WINDOW", window, "SUM", sum).Replace(
		`SUM (increase(SELECTOR[$WINDOW])) > 0
or
SUM (
  (SELECTOR unless SELECTOR offset $WINDOW)
  and on (cluster, job, instance) (time() - process_start_time_seconds < $(WINDOW))
) > 0`)
}

var duration = regexp.MustCompile(`\$\((\d+[smhd])\)|\$(\d+[smhd])`)

// expr is an expression with its durations divided by factor.
func expr(e string, factor int) string {
	return duration.ReplaceAllStringFunc(e, func(m string) string {
		part := duration.FindStringSubmatch(m)
		if part[1] != "" {
			return strconv.FormatFloat((parse(part[1]) / time.Duration(factor)).Seconds(), 'f', -1, 64)
		}
		return format(parse(part[2]) / time.Duration(factor))
	})
}

// parse reads a duration as it is written in an expression.
func parse(s string) time.Duration {
	n, err := strconv.Atoi(s[:len(s)-1])
	if err != nil {
		panic(fmt.Sprintf("duration %q of a rule: %v", s, err)) // the pattern has let only digits through
	}
	unit := map[byte]time.Duration{'s': time.Second, 'm': time.Minute, 'h': time.Hour, 'd': 24 * time.Hour}[s[len(s)-1]]
	return time.Duration(n) * unit
}

// format writes a duration as Prometheus reads it.
func format(d time.Duration) string {
	for _, u := range []struct {
		name string
		d    time.Duration
	}{{"d", 24 * time.Hour}, {"h", time.Hour}, {"m", time.Minute}, {"s", time.Second}} {
		if d >= u.d && d%u.d == 0 {
			return strconv.FormatInt(int64(d/u.d), 10) + u.name
		}
	}
	return strconv.FormatInt(max(1, d.Milliseconds()), 10) + "ms"
}
