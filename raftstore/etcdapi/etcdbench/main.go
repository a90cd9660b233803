package main

import (
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
)

func main() {
	var err error
	switch a := os.Args; {
	case len(a) == 7 && a[1] == "serve-etcd":
		err = serveEtcd(a[2], a[3], a[4], a[5], a[6])
	case len(a) == 3 && a[1] == "serve-ceiling":
		err = serveCeiling(a[2])
	default:
		err = run()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "etcdbench:", err)
		os.Exit(1)
	}
}

// run measures phase by phase, the targets in turns and every other round in
// the opposite order, so that what changes on the machine hits all alike.
func run() error {
	binary := flag.String("leasehold", "leasehold", "the `program` to measure")
	seconds := flag.Float64("seconds", 3, "how long each measurement takes")
	rounds := flag.Int("rounds", 3, "how often each is repeated; the median counts")
	only := flag.String("run", ".", "a regular expression for names of `phases`")
	sessions := flag.Int("sessions", 10_000, "how many sessions are kept alive")
	dir := flag.String("dir", "", "where the data goes; a real disk, or fsync costs nothing")
	kinds := flag.String("targets", "leasehold,etcd,ceiling", "which of them to measure")
	format := flag.String("o", "table", "table or json")
	flag.Parse()
	match, err := regexp.Compile(*only)
	if err != nil {
		return fmt.Errorf("-run %q: %w", *only, err)
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	targets := []target{leaseholdTarget(*binary), etcdTarget(self), ceilingTarget(self)}
	targets = slices.DeleteFunc(targets, func(t target) bool { return !slices.Contains(strings.Split(*kinds, ","), t.name) })
	results := map[string]map[string][]figures{}
	var ran []phase
	for _, p := range phases(*sessions) {
		if match.MatchString(p.name) {
			ran = append(ran, p)
			results[p.name] = map[string][]figures{}
		}
	}
	for round := range *rounds {
		for _, t := range targets {
			if err := measure(ctx, t, ran, *dir, *seconds, round, results); err != nil {
				return fmt.Errorf("%s: %w", t.name, err)
			}
		}
		slices.Reverse(targets)
	}
	if *format == "json" {
		return printJSON(ran, results)
	}
	return printTable(ran, results)
}

// measure runs all phases on a fresh cluster.
func measure(ctx context.Context, t target, ran []phase, dir string, seconds float64, round int, results map[string]map[string][]figures) error {
	if !slices.ContainsFunc(ran, func(p phase) bool { return !p.skip[t.name] }) {
		return nil
	}
	c, err := startCluster(ctx, t, dir)
	if err != nil {
		return err
	}
	defer c.stop()
	if t.ports > 3 {
		for i := range c.ports {
			fmt.Fprintf(os.Stderr, "profiles of %s: http://%s/debug/pprof/\n", name(i), local(c.ports[i][3]))
		}
	}
	for _, p := range ran {
		if p.skip[t.name] {
			continue
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		fmt.Fprintf(os.Stderr, "round %d: %s, %s\n", round+1, t.name, p.name)
		f, err := p.run(ctx, c, seconds)
		if err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		results[p.name][t.name] = append(results[p.name][t.name], f)
	}
	return nil
}

// median of what the phase looks at, with its figures.
func median(p phase, all []figures) (float64, figures) {
	if len(all) == 0 {
		return 0, figures{}
	}
	sorted := slices.SortedFunc(slices.Values(all), func(a, b figures) int { return cmp.Compare(p.value(a), p.value(b)) })
	f := sorted[len(sorted)/2]
	return p.value(f), f
}

func printTable(ran []phase, results map[string]map[string][]figures) error {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\tleasehold\tetcd\tceiling\tratio\tgoal\t\tCPU µs per op, servers (client)")
	for _, p := range ran {
		ours, f := median(p, results[p.name]["leasehold"])
		theirs, g := median(p, results[p.name]["etcd"])
		top, h := median(p, results[p.name]["ceiling"])
		ratio, goal := 0.0, "at most"
		if theirs > 0 {
			ratio = ours / theirs
		}
		met := ratio <= p.goal
		if p.faster {
			goal, met = "at least", ratio >= p.goal
		}
		verdict := "met"
		if !met {
			verdict = "MISSED"
		}
		fmt.Fprintf(w, "%s\t%.4g %s\t%.4g\t%.4g\t%.2f\t%s %g\t%s\t%s\n", p.name, ours, p.unit, theirs, top, ratio, goal, p.goal, verdict, costs(f, g, h))
	}
	return w.Flush()
}

// costs says what an operation costs each target, in the order of the table.
func costs(all ...figures) string {
	var list []string
	for _, f := range all {
		if f.ServerMicros > 0 {
			list = append(list, fmt.Sprintf("%.0f (%.0f)", f.ServerMicros, f.ClientMicros))
		}
	}
	return strings.Join(list, ", ")
}

func printJSON(ran []phase, results map[string]map[string][]figures) error {
	enc := json.NewEncoder(os.Stdout)
	for _, p := range ran {
		for _, t := range []string{"leasehold", "etcd", "ceiling"} {
			if len(results[p.name][t]) == 0 {
				continue
			}
			_, f := median(p, results[p.name][t])
			err := enc.Encode(struct {
				Phase  string `json:"phase"`
				Target string `json:"target"`
				figures
				P50 float64 `json:"p50_ms,omitempty"`
				P99 float64 `json:"p99_ms,omitempty"`
			}{p.name, t, f, float64(f.P50.Microseconds()) / 1000, float64(f.P99.Microseconds()) / 1000})
			if err != nil {
				return err
			}
		}
	}
	return nil
}
