// Package api is the native API of Leasehold, leasehold.v1, over raftstore and
// the controller: gRPC services, and the same calls as JSON over HTTP.
//
// # Promises
//
//   - Any server answers any call. A follower forwards to the leader, marked,
//     never twice; without a leader the caller gets a typed, retryable error at
//     once and no leader hint rather than an old one.
//   - Reads are linearizable unless the caller asks for stale ones, which are
//     answered on the spot and carry their age in the header leasehold-age-ms.
//     GetStatus, ListPeers, GetHealth, CollectDebug and WatchEvents are always
//     answered on the spot.
//   - Every error carries an ErrorDetail with a stable reason; one table maps
//     reasons to gRPC codes. What is refused has changed nothing.
//   - What a worker is told on its stream converges to the state: changes in log
//     order, and the full list whenever a queue overflowed or the worker's sum
//     over its running leases stays different from the state's.
//   - A keep-alive is acknowledged when it has been committed, not before.
//   - When leadership ends, all streams end with not_leader.
//
// # Locks
//
// The store's lock comes first, then hub.mu, then stream.mu. OnApply runs under
// the store's lock and only appends and signals. Nothing here reads the store
// with hub.mu or stream.mu held.
//
// # Goroutines
//
// Per attached session: gRPC's own, which writes; one that reads; and, while a
// release or another command of the worker is in flight, one that proposes. Per
// forwarded stream: gRPC's own and one. Run itself: none. Nothing is started per
// keep-alive.
package api
