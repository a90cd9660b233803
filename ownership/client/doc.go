// Package client reaches a Leasehold cluster: it is given some servers, finds
// out which of them answers and who leads, and offers the generated gRPC
// clients over whichever is best at the moment.
//
// Any server answers any call (followers forward once), so the leader is a
// preference and never a need: a client that cannot reach the leader works
// through a follower.
//
// What is repeated, and what is not:
//
//   - A call that was refused because there is no leader, or that never left
//     this process, is tried again until its context ends.
//   - A call that may be repeated without harm (reads, keep-alive) is also
//     tried again elsewhere when a server broke off or went silent.
//   - A call of somebody whom the servers do not know, or who may not do it, is
//     never repeated: their refusal has a reason (see Detail), and says what to
//     do.
//   - A changing call that was sent and got no answer is never repeated. It
//     ends with an *UnknownOutcomeError: look before trying again.
//
// The package has no goroutine of its own but for the moment in which it asks
// all servers at once; gRPC has some per connection, which end with Close. It
// links neither Raft nor the servers' code.
package client
