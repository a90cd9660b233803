// Package listen stands between the network and what a server serves: it bounds
// how many connections there are, makes the handshakes of those with TLS, and ends
// connections whose certificate has been revoked. gRPC, HTTP and Raft have the same
// one.
//
// It promises:
//   - Accept never waits for a peer: a connection comes out of it with its
//     handshake done. One that is slow, or speaks no TLS, is in nobody's way.
//   - What is above a limit is closed at once, and counted.
//   - Handshakes have a deadline, and only so many are made at a time. When there is
//     no room, the oldest gives way if it has had a fair time.
//   - Of those who have proven nothing, one address does not keep out the others.
//   - A stranger, who has shown no certificate and proven nothing, has two minutes and,
//     over gRPC, 64 KiB, and gives way where there is no room for somebody else.
//   - Cut and Recheck end the connections of those who are let in no more, also when
//     their handshake is just being made.
//   - Close ends everything that has not come out of Accept, and waits for it.
//
// A Listener with TLS runs one goroutine from the first Accept to Close, and one
// for each handshake; a plain one runs none.
package listen
