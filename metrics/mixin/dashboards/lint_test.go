package dashboards

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
)

// TestLint holds every panel against every rule.
func TestLint(t *testing.T) {
	known := families(t)
	for name, b := range committed(t) {
		for _, p := range b.panels() {
			for _, fault := range lint(p, known) {
				t.Errorf("%s, %q: %s", name, p.Title, fault)
			}
		}
		for _, a := range b.Annotations.List {
			p := modelPanel{Title: a.Name, Targets: []modelTarget{{Expr: a.Expr}}}
			for _, fault := range lint(p, known) {
				if !strings.HasPrefix(fault, "panel: ") && !strings.HasPrefix(fault, "legend: ") {
					t.Errorf("%s, annotation %q: %s", name, a.Name, fault)
				}
			}
		}
	}
}

// TestVariablesAreFilled: what can be chosen comes from labels that exist.
func TestVariablesAreFilled(t *testing.T) {
	known := families(t)
	from := regexp.MustCompile(`^"label_values\((\w+)(\{.*\})?, (\w+)\)"$`)
	for name, b := range committed(t) {
		for _, v := range b.Templating.List {
			if v.Type != "query" {
				continue
			}
			m := from.FindStringSubmatch(string(v.Query))
			if m == nil {
				t.Errorf("%s: variable %s is filled by %s", name, v.Name, v.Query)
				continue
			}
			f, ok := known[m[1]]
			if _, has := f.labels[m[3]]; !ok || !has && !slices.Contains(targetLabels, m[3]) {
				t.Errorf("%s: variable %s: %s with label %s does not exist", name, v.Name, m[1], m[3])
			}
		}
	}
}

// lint returns what is wrong with a panel; each fault begins with its rule.
func lint(p modelPanel, known map[string]family) (faults []string) {
	say := func(rule, format string, args ...any) {
		faults = append(faults, rule+": "+fmt.Sprintf(format, args...))
	}
	if p.Title == "" || p.FieldConfig.Defaults.Unit == "" {
		say("panel", "title %q or unit %q is missing", p.Title, p.FieldConfig.Defaults.Unit)
	}
	if len(p.Description) < 40 || !strings.HasSuffix(p.Description, ".") {
		say("panel", "the description says too little: %q", p.Description)
	}
	if want := (modelSource{"prometheus", "${datasource}"}); p.Datasource != want {
		say("panel", "its datasource is %+v", p.Datasource)
	}
	if len(p.Targets) == 0 {
		say("panel", "it has no query")
	}
	refs := make(map[string]bool)
	var names []string // of series that the panel may show
	for _, q := range p.Targets {
		if refs[q.RefID] {
			say("panel", "two queries are called %s", q.RefID)
		}
		refs[q.RefID] = true
		expr, err := parser.NewParser(parser.Options{}).ParseExpr(substitute(q.Expr))
		if err != nil {
			say("parse", "%v", err)
			continue
		}
		checkSelectors(expr, known, say)
		checkWindows(p, q, say)
		checkAggregations(expr, known, say)
		checkQuantiles(expr, say)
		checkLegend(p, q, expr, say)
		checkUnit(p, expr, say)
		names = append(names, seriesNames(q, expr, known)...)
	}
	for _, o := range p.FieldConfig.Overrides {
		pattern := regexp.MustCompile(strings.Trim(o.Matcher.Options, "/"))
		if !slices.ContainsFunc(names, pattern.MatchString) {
			say("look", "no series is called %s", o.Matcher.Options)
		}
	}
	return faults
}

type sayer = func(rule, format string, args ...any)

// substitute replaces Grafana's variables as Grafana does with an hour in view
// and everything chosen.
func substitute(expr string) string {
	return strings.NewReplacer("$__rate_interval", "1m", "$__range", "1h", "$__interval", "15s", "$cluster", ".*", "$keyspace", ".*").Replace(expr)
}

// checkSelectors: series and labels exist, the cluster is the chosen one, and
// counters are looked at through rate or increase, gauges never.
func checkSelectors(expr parser.Expr, known map[string]family, say sayer) {
	parser.Inspect(expr, func(node parser.Node, path []parser.Node) error {
		v, ok := node.(*parser.VectorSelector)
		if !ok {
			return nil
		}
		f, ok := known[v.Name]
		if !ok {
			say("series", "%s does not exist", v.Name)
			return nil
		}
		chosen := false
		for _, m := range v.LabelMatchers {
			switch {
			case m.Name == model.MetricNameLabel:
			case m.Name == "cluster":
				chosen = m.Type == labels.MatchRegexp
			case slices.Contains(targetLabels, m.Name):
			default:
				values, ok := f.labels[m.Name]
				if !ok {
					say("label", "%s has no label %s", v.Name, m.Name)
				} else if values != nil && !slices.ContainsFunc(values, m.Matches) {
					say("label", "%s never has %s", v.Name, m)
				}
			}
		}
		if !chosen {
			say("cluster", "%s is not that of the chosen cluster", v.Name)
		}
		rated := false
		if len(path) >= 2 {
			if call, ok := path[len(path)-2].(*parser.Call); ok {
				rated = slices.Contains([]string{"rate", "increase"}, call.Func.Name)
			}
		}
		if f.kind != "gauge" && !rated {
			say("counter", "%s only grows: take its rate or increase", v.Name)
		}
		if f.kind == "gauge" && rated {
			say("counter", "%s is a gauge, which has no rate", v.Name)
		}
		return nil
	})
}

var window = regexp.MustCompile(`\[([^\]:]+)\]`)

// checkWindows: a window follows what is in view, or the title names it.
func checkWindows(p modelPanel, q modelTarget, say sayer) {
	for _, m := range window.FindAllStringSubmatch(q.Expr, -1) {
		switch m[1] {
		case "$__rate_interval":
		case "$__range":
			if !q.Instant {
				say("window", "[$__range] is for one number, not for a graph")
			}
		default:
			long := strings.NewReplacer("d", " days", "h", " h", "m", " min").Replace(m[1])
			if !strings.Contains(p.Title, long) {
				say("window", "[%s] is fixed and the title does not say %q", m[1], long)
			}
		}
	}
}

// checkAggregations: labels to group by exist, clusters are not mixed, and what
// each server says of the same state is not added up.
func checkAggregations(expr parser.Expr, known map[string]family, say sayer) {
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		a, ok := node.(*parser.AggregateExpr)
		if !ok {
			return nil
		}
		if a.Without {
			say("by", "%s without: say by which labels", a.Op)
		}
		if !slices.Contains(a.Grouping, "cluster") && !slices.Contains(a.Grouping, "le") && !slices.Contains(a.Grouping, "alertname") {
			say("by", "%s by (%s) mixes clusters", a.Op, strings.Join(a.Grouping, ", "))
		}
		for _, label := range a.Grouping {
			for _, name := range seriesOf(a.Expr) {
				if _, ok := known[name].labels[label]; !ok && !slices.Contains(targetLabels, label) {
					say("by", "%s has no label %s to group by", name, label)
				}
			}
		}
		v, direct := a.Expr.(*parser.VectorSelector)
		if direct && a.Op == parser.SUM && strings.HasPrefix(v.Name, "leasehold_") && !strings.HasPrefix(v.Name, "leasehold_worker_") &&
			!slices.Contains(a.Grouping, "instance") {
			say("sum", "each server has %s: take the max before the sum", v.Name)
		}
		return nil
	})
}

// checkQuantiles: over sum by (…, le) (rate(…_bucket)), and nothing else.
func checkQuantiles(expr parser.Expr, say sayer) {
	parser.Inspect(expr, func(node parser.Node, path []parser.Node) error {
		if v, ok := node.(*parser.VectorSelector); ok && strings.HasSuffix(v.Name, "_bucket") {
			if !slices.ContainsFunc(path, groupsByLe) {
				say("quantile", "%s is not summed by le", v.Name)
			}
			return nil
		}
		call, ok := node.(*parser.Call)
		if !ok || call.Func.Name != "histogram_quantile" {
			return nil
		}
		for _, name := range seriesOf(call.Args[1]) {
			if !strings.HasSuffix(name, "_bucket") {
				say("quantile", "%s has no buckets", name)
			}
		}
		if a, ok := call.Args[1].(*parser.AggregateExpr); !ok || a.Op != parser.SUM {
			say("quantile", "quantiles are taken of a sum: servers and workers share one histogram")
		}
		return nil
	})
}

func groupsByLe(node parser.Node) bool {
	a, ok := node.(*parser.AggregateExpr)
	return ok && slices.Contains(a.Grouping, "le")
}

// checkLegend: what tells two series of one query apart is in their name. An
// instance is of one cluster; a histogram's rows are named by their bucket.
func checkLegend(p modelPanel, q modelTarget, expr parser.Expr, say sayer) {
	if q.LegendFormat == "" {
		say("legend", "the series of %s have no name", q.RefID)
	}
	var by []string
	parser.Inspect(expr, func(node parser.Node, path []parser.Node) error {
		a, ok := node.(*parser.AggregateExpr)
		if ok && !slices.ContainsFunc(path, func(n parser.Node) bool { _, inner := n.(*parser.AggregateExpr); return inner }) {
			by = append(by, a.Grouping...)
		}
		return nil
	})
	for _, label := range by {
		if label == "le" && p.Type != "heatmap" || label == "cluster" && slices.Contains(by, "instance") {
			continue
		}
		if !strings.Contains(q.LegendFormat, "{{"+label+"}}") {
			say("legend", "%q does not tell which %s", q.LegendFormat, label)
		}
	}
	for _, m := range legendLabel.FindAllStringSubmatch(q.LegendFormat, -1) {
		if !slices.Contains(by, m[1]) {
			say("legend", "{{%s}} is not left after the query", m[1])
		}
	}
}

// checkUnit: what is in seconds or bytes is shown in them.
func checkUnit(p modelPanel, expr parser.Expr, say sayer) {
	names := seriesOf(expr)
	unit := p.FieldConfig.Defaults.Unit
	for suffix, units := range map[string][]string{
		"_seconds": {"s"}, "_seconds_bucket": {"s"}, "_bytes": {"bytes"}, "_bytes_total": {"Bps"}, "_ratio_bucket": {"percentunit"},
	} {
		all := !slices.ContainsFunc(names, func(n string) bool { return !strings.HasSuffix(n, suffix) })
		if all && !slices.Contains(units, unit) {
			say("unit", "%v are shown in %q", names, unit)
		}
	}
}

// seriesNames fills the legend with every value that its labels can have.
func seriesNames(q modelTarget, expr parser.Expr, known map[string]family) []string {
	filled := []string{q.LegendFormat}
	for _, m := range legendLabel.FindAllStringSubmatch(q.LegendFormat, -1) {
		values := []string{"any"}
		for _, name := range seriesOf(expr) {
			if v := known[name].labels[m[1]]; v != nil {
				values = v
			}
		}
		var next []string
		for _, name := range filled {
			for _, v := range values {
				next = append(next, strings.ReplaceAll(name, m[0], v))
			}
		}
		filled = next
	}
	return filled
}

var legendLabel = regexp.MustCompile(`\{\{(\w+)\}\}`)

// seriesOf returns the names of all series in an expression.
func seriesOf(expr parser.Node) (names []string) {
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		if v, ok := node.(*parser.VectorSelector); ok {
			names = append(names, v.Name)
		}
		return nil
	})
	return names
}
