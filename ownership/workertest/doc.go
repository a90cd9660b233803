// Package workertest is an in-memory Leasehold server for unit tests of
// handlers. The worker library that the test runs is the real one and speaks
// the real protocol; only the server is played, and the test says what it does:
//
//	srv := workertest.NewServer(t, workertest.Strict("orders", 8))
//	stop := srv.Start(srv.Config("w1"), "orders", handle, worker.Claim(guard))
//	token := srv.Grant("w1", "orders", 3)
//	srv.AwaitRunning(token)
//	srv.Drain(token, 10*time.Second)
//	if e := srv.AwaitReleased(token); e.Cause != "drained" {
//		t.Errorf("given back as %s: %s", e.Cause, e.Error)
//	}
//
// example_test.go has a handler with its tests for a drain, an expiry and a
// zombie. No port is opened. Use it inside a testing/synctest bubble, where a TTL of
// ten seconds takes no time; outside one it works too, and the TTL lasts as
// long as it says.
//
// # What a test can do
//
//   - [Server.Grant] gives a partition to a worker, [Server.Drain] asks for it
//     back in a planned move, [Server.Revoke] takes it back.
//   - [Server.Expire] loses keep-alives until the session is over.
//     [Server.LoseConnection] cuts the network until [Server.RestoreConnection].
//   - [Server.Pause] stops the process, as SIGSTOP or a long garbage collection
//     would, until [Server.Resume]: its clock stands still, so that its leases
//     look good to it while others own the partitions. That is the zombie that
//     only a guard at the resource can stop.
//   - [Server.Evict] bars a worker. A second worker of the same id, see
//     [Server.Config], is refused or takes over by the real rules.
//
// [Server.AwaitRunning] and its sisters wait for what the worker does,
// [Server.History] lists what was granted and given back, with tokens and causes.
//
// # Promises
//
//   - A renewal counts from when it arrives, a session ends at its deadline
//     and not before, a lease goes back with its own token only, tokens rise
//     from grant to grant. Strict and fenced keyspaces differ as they do on a
//     real server. A test of this package runs the same stories against it and
//     against a real server and compares what handlers see.
//   - What cannot happen on a real server cannot be asked for: the test stops
//     with a message that says what to do instead.
//   - After the test nothing of the package is left running.
//
// It does not place partitions by itself, keeps no quarantine and no slots for
// workers that restart, has one TTL for all keyspaces, and believes any token
// that a worker reports, where a real server looks at its clock. Gossip is off.
//
// Methods of [Server] call t.Fatal, so call them from the test's goroutine.
//
// # Goroutines
//
// One accepts connections, gRPC has a few per connection, and there is one per
// stream that reads. Start adds one per worker, and the worker library its own.
package workertest
