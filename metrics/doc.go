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
//   - a label is bounded: an unknown value becomes "other", or is ignored where
//     there cannot be one, and the keyspace label has at most MaxKeyspaces names
//     plus "other". No partition, key, session, token, worker or address is ever
//     a label value;
//   - a server has ServerSeries(keyspaces) series of its own: a base, and 8 for
//     each keyspace up to MaxKeyspaces and for "other". A scrape adds about 50
//     of go_*, process_* and promhttp_*, and has at most 600 in all with up to
//     eight keyspaces, however many partitions, workers, sessions, locks and keys
//     there are. A worker has at most 120.
//
// What workers say of themselves reaches the servers with their keep-alives, and
// the leader that hears it counts it: fencing_checks_total, fencing_rejections_total,
// leases_lost_total and overruns_total of a cluster are the sums over its servers.
// After a change of the leader what a worker met between its last report to the
// old one and its first to the new one is missing from them; nothing is in them
// twice. The worker's own series have it all.
//
// Methods are safe for concurrent use and do not block. The package starts no
// goroutine and depends on no other package of the project.
package metrics

// Series of a server, counted as Prometheus stores them: a histogram has one for
// each bucket, one for +Inf, its sum and its count.
const (
	baseSeries     = 478
	keyspaceSeries = 8
)

// ServerSeries is how many series a server has with so many keyspaces.
func ServerSeries(keyspaces int) int {
	return baseSeries + keyspaceSeries*(1+min(keyspaces, MaxKeyspaces))
}
