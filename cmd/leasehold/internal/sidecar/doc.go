// Package sidecar makes a worker of any command, for programs in languages that
// have no Leasehold library: `leasehold run` and `leasehold hold`. A Guard does the
// same for one command under any session that somebody keeps alive, such as that
// of a lock.
//
//	sidecar ──requests──▶ keeper ──parent of──▶ CMD, CMD, …
//	   │     ◀─reports──
//	   └── ownership/worker: the session and its leases
//
// The sidecar holds the session and knows the leases. The keeper is a second
// process of this same binary: the parent of the commands and the one that
// kills them. It needs nobody's word to do so, because the sidecar has told it
// until when it may let them live.
//
// # Promises
//
//   - The command dies with the sidecar: when the sidecar's end of the pipe
//     closes, however it died, the keeper kills every process group at once.
//   - The command dies with its lease: at the send time of the last
//     acknowledged keep-alive plus TTL less the worker's margin, on the boot
//     clock, the keeper kills it, also when the sidecar is stopped. A running
//     sidecar does so earlier: SIGTERM when the lease is lost, SIGKILL after
//     half of the stop grace, which the servers know nothing of.
//   - The lease goes with the command: it is released as soon as the command
//     and what it left behind are gone.
//   - Either of the two processes may be killed or stopped alone. If the keeper
//     dies, the kernel kills its children, and the sidecar kills the rest and
//     ends.
//
// What is killed with a command: its process group, its descendants, and on
// Linux also those that left both by a double fork and setsid. These fall to
// the keeper (it is a child subreaper), which knows them by a variable in their
// environment. One that has wiped that too belongs to nobody known and is killed
// with the next command that ends.
//
// What cannot be promised: both processes killed in the same instant leave
// processes that left the group; both stopped, or the machine paused, leave the
// commands working past the lease until they go on. A process that changed to
// another user cannot be killed by us. Only a guard at the resource, given the
// token, covers these.
//
// Without Linux there is no subreaper and no signal at the parent's death: then
// only process groups are killed, and only while one of the two processes lives.
//
// # Goroutines
//
// Sidecar: two for the keeper's pipe, those of the worker, one per command that
// is waited for, and in per-worker mode one for the API and one per request.
// Keeper: one reads requests, one writes reports, one starts commands, one looks
// at deadlines and at ended children, one per command that has ended (two while
// it waits for the rest of the output), and two per command whose output is
// taken line by line.
package sidecar
