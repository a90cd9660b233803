// Package dashboards is Leasehold's Grafana dashboards as Go values, which it
// turns into the files of deploy/grafana:
//
//   - overview: is work owned, who owns it, what changed, what must never be
//   - ownership: how fast and how often partitions move, and the proof that no
//     two owners worked at once
//   - workers: sessions, renewals, what is left of the TTL, and how work ends
//   - servers: Raft, storage, gossip, API and keys
//
// Each row asks one question, and each panel says in its description what it
// shows and what to look at next. Nothing needs a recording rule.
//
// Promises, each with a test: a query uses only series, labels and values that
// package metrics has; it selects the cluster that was chosen and mixes it with
// no other; it takes rates of counters and of nothing else, and adds up nothing
// that every server says of the same state; and after a storm over a live
// cluster every query of every panel returns numbers.
//
// The package is pure: it starts no goroutine and opens no file.
package dashboards
