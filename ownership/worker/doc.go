// Package worker is the library that a program links to own partitions. It
// opens a session, receives leases, runs one handler per partition, and sees
// to it that each handler hears in time that its partition is not its own any
// more.
//
//	w, err := worker.Join(ctx, worker.Config{Servers: "10.0.0.1:7400", ID: "w1"})
//	err = w.Run(ctx, "orders", handle, worker.Claim(guard))
//
// A handler has two signals. [Lease.Draining] is the soft one: still the owner,
// finish and return nil. Its context is the hard one: not the owner any more;
// context.Cause tells why.
//
// # Promises
//
//   - The context of a lease ends before the servers may give the partition to
//     somebody else: at the send time of the last acknowledged keep-alive plus
//     TTL, less a margin of max(5 % of TTL, 250 ms) and less StopGrace, on a
//     clock that also runs while the machine is suspended.
//   - Keep-alives never wait for a handler, a claim, an observer or any other
//     code of the program.
//   - A token is run once. What arrives late or twice is ignored; a partition
//     granted again waits until its old handler has returned.
//   - With [Claim] the resource has seen the token before the handler starts.
//   - An answer that says neither yes nor no counts as "not confirmed" and is
//     asked again until the deadline; only a definite refusal ends work at once.
//
// What the library cannot promise: a process that is paused between
// [Lease.Check] and its write does not know that it was paused. Only a guard at
// the resource, given [Lease.Token], refuses that write.
//
// # Goroutines
//
// Join starts none. From the first Run until the last one returns there are: the
// loop, which owns session and leases; one that calls the observer; two for the
// stream (reader and writer) and one that looks for a server while there is no
// stream; at most one for a keep-alive on its way round through another server;
// one per Run that claims, if it has a guard; gossip's own, unless switched off;
// one per handler, and one per call of OnOverrun. DESIGN.md draws them.
package worker
