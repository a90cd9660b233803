// Package rules has the recording rules and alerts for Prometheus as Go values,
// in one list, and writes them as deploy/prometheus/leasehold.rules.yml, with a
// table of the alerts for the folder of the runbooks.
//
// Promises:
//   - every series is one of metrics/testdata/series.golden, or up or
//     process_start_time_seconds, which Prometheus and every server have;
//   - a rule works for one cluster or several, told apart by the label cluster,
//     and without that label;
//   - an event is noticed when it is the first one of a process, also when the
//     process was never scraped before;
//   - every alert has a runbook, a case of `promtool test rules` in which it
//     fires and one in which it does not.
//
// Durations in expressions are written $10m, and $(10m) where seconds are
// wanted. All, with the time of Alert.For, are divided by the factor that
// Write is given: a test at factor 60 sees in seconds what takes minutes.
// Files for users have factor 1. What has no duration of its own is the same at
// every factor: thresholds of sizes, shares and rates.
//
// The package starts no goroutine and reads no clock.
package rules
