// Package router tells a caller, from memory, who owns a key now: which
// partition it belongs to, which worker has the lease, where that worker is
// reached, and under which fencing token.
//
// A [Router] lists the partitions of its keyspaces once and then follows the
// servers' events. [Router.Lookup] reads a table in this process: no lock, no
// allocation, well below 100 ns. Whoever is told "not the owner, it is …" hands
// that on with [Router.Correct], so that the table is right before the event
// comes. [Proxy] and [Pool] do all of that for net/http and gRPC, [NotOwner]
// and [UnaryNotOwner] are the owners' side.
//
// Promises:
//
//   - The owner and the token of a Route belong together, and the token of a
//     partition never falls: an event or a hint that is older than what the
//     table has changes nothing.
//   - No event is lost: a watch that broke goes on where it was, at the next
//     server; where that is impossible, everything is listed again.
//   - The table stays when no server can be reached, and [Router.Age] says how
//     old it is.
//   - A request is sent at most twice, and never twice to the same address.
//
// Not promised: that the worker named still is the owner when it is reached. A
// table is a hint, also a fresh one. Owners check with NotOwner whether they
// hold the partition, and the resource checks the token.
//
// Goroutines: two while Run runs (the one that called it follows the events,
// one asks back about hints and endpoints), for the connections gRPC's own.
// Proxy, Pool and the owners' side start none.
package router
