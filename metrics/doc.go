// Package metrics names every Prometheus series of Leasehold and is the only
// place where one is made. testdata/series.golden lists them with type, labels
// and help; dashboards and alerts may use those and nothing else.
//
// A process that runs a server makes one Server (which holds its Raft and
// Gossip series); a user's process makes one Worker and registers it where it
// likes. Every method may be called on a nil receiver and then does nothing, so
// code that measures never asks whether somebody listens.
//
// Promises:
//   - all fixed label values exist at 0 from the start, so that the first event
//     is not lost to increase() and rate();
//   - a label is bounded: an unknown value becomes "other", and the keyspace
//     label has at most MaxKeyspaces names plus "other". No partition, key,
//     session, token, worker or address is ever a label value;
//   - a server has at most 600 series, a worker at most 120.
//
// Methods are safe for concurrent use and do not block. The package starts no
// goroutine and depends on no other package of the project.
package metrics
