package dashboards

import (
	"slices"
	"strings"
	"testing"
)

// TestLintRulesCanFail breaks each rule once: what is right passes, and each
// fault is found by the rule that it is for.
func TestLintRulesCanFail(t *testing.T) {
	known := families(t)
	good := func(expr, legend string) modelPanel {
		p := modelPanel{
			Type: "timeseries", Title: "Moves", Description: "Partitions that got another owner, by reason.",
			Datasource: modelSource{"prometheus", "${datasource}"},
			Targets:    []modelTarget{{RefID: "A", Expr: expr, LegendFormat: legend}},
		}
		p.FieldConfig.Defaults.Unit = "none"
		return p
	}
	const moves = `sum by (cluster, reason) (increase(leasehold_partition_moves_total{cluster=~"$cluster"}[$__rate_interval]))`
	p := good(moves, "{{cluster}} {{reason}}")
	if faults := lint(p, known); len(faults) != 0 {
		t.Fatalf("a good panel has faults: %q", faults)
	}

	cases := []struct {
		name, rule string
		panel      func(p *modelPanel)
	}{
		{"no unit", "panel", func(p *modelPanel) { p.FieldConfig.Defaults.Unit = "" }},
		{"no title", "panel", func(p *modelPanel) { p.Title = "" }},
		{"no description", "panel", func(p *modelPanel) { p.Description = "Moves." }},
		{"a datasource by name", "panel", func(p *modelPanel) { p.Datasource.UID = "Prometheus" }},
		{"no query", "panel", func(p *modelPanel) { p.Targets = nil }},
		{"two queries of one name", "panel", func(p *modelPanel) { p.Targets = append(p.Targets, p.Targets[0]) }},
		{"not PromQL", "parse", expr(`sum by (cluster (up)`)},
		{"a series that is gone", "series", expr(`max by (cluster) (leasehold_gone{cluster=~"$cluster"})`)},
		{"a label that is not there", "label", expr(`max by (cluster) (leasehold_raft_term{cluster=~"$cluster",peer="s1"})`)},
		{"a value that is never there", "label", expr(`max by (cluster) (leasehold_partitions{cluster=~"$cluster",state="lost"})`)},
		{"no cluster", "cluster", expr(`max by (cluster) (leasehold_raft_term)`)},
		{"a raw counter", "counter", expr(`sum by (cluster, reason) (leasehold_partition_moves_total{cluster=~"$cluster"})`)},
		{"a gauge's rate", "counter", expr(`max by (cluster) (rate(leasehold_raft_term{cluster=~"$cluster"}[$__rate_interval]))`)},
		{"a fixed window", "window", expr(strings.Replace(moves, "$__rate_interval", "5m", 1))},
		{"the whole range in a graph", "window", expr(strings.Replace(moves, "$__rate_interval", "$__range", 1))},
		{"grouped by nothing", "by", expr(strings.Replace(moves, "reason", "why", 1))},
		{"clusters mixed", "by", expr(strings.Replace(moves, "cluster, ", "", 1))},
		{"grouped without", "by", expr(strings.Replace(moves, "by (cluster, reason)", "without (instance)", 1))},
		{"three servers added up", "sum", expr(`sum by (cluster) (leasehold_partitions_configured{cluster=~"$cluster"})`)},
		{"a quantile of no buckets", "quantile", expr(`histogram_quantile(0.9, sum by (cluster, le) (rate(leasehold_sessions_opened_total{cluster=~"$cluster"}[$__rate_interval])))`)},
		{"a quantile without le", "quantile", expr(`histogram_quantile(0.9, sum by (cluster) (rate(leasehold_takeover_duration_seconds_bucket{cluster=~"$cluster"}[$__rate_interval])))`)},
		{"a quantile of a rate", "quantile", expr(`histogram_quantile(0.9, rate(leasehold_takeover_duration_seconds_bucket{cluster=~"$cluster"}[$__rate_interval]))`)},
		{"no legend", "legend", func(p *modelPanel) { p.Targets[0].LegendFormat = "" }},
		{"a legend that does not tell", "legend", func(p *modelPanel) { p.Targets[0].LegendFormat = "{{cluster}}" }},
		{"a legend of what is gone", "legend", func(p *modelPanel) { p.Targets[0].LegendFormat += " {{instance}}" }},
		{"a colour for what never shows", "look", func(p *modelPanel) {
			p.FieldConfig.Overrides = make([]modelOverride, 1)
			p.FieldConfig.Overrides[0].Matcher.Options = "/(^| )tidied$/"
		}},
		{"seconds as a number", "unit", expr(`max by (cluster) (leasehold_raft_oldest_log_age_seconds{cluster=~"$cluster"})`)},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			p := good(moves, "{{cluster}} {{reason}}")
			c.panel(&p)
			faults := lint(p, known)
			if !slices.ContainsFunc(faults, func(f string) bool { return strings.HasPrefix(f, c.rule+": ") }) {
				t.Errorf("the rule %q did not notice; found %q", c.rule, faults)
			}
		})
	}
}

func expr(text string) func(*modelPanel) {
	return func(p *modelPanel) { p.Targets[0].Expr = text }
}
