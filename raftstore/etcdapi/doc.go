// Package etcdapi serves the etcd v3 API on a server of the group, so that
// etcd's own clients work. It alone speaks etcd's dialect: an etcd lease is a
// session of the state, a revision one of its keys.
//
// # Promises
//
//   - Any server answers any call. A follower hands what only the leader can do
//     to it (relay.go), once; a call that may have been done is never repeated
//     for its caller.
//   - Reads are linearizable unless the caller asks for serializable ones, which
//     are answered from this server's own state.
//   - Codes and texts of errors are etcd's own, from one table; limits and
//     numbers beside them are in the status details. What is refused has changed
//     nothing.
//   - Every call is one of somebody's (access.FromContext), and of a method that the
//     table lets them call (permissions.go). Keys are checked as they are executed:
//     in every branch of a transaction, at every depth, and where a watch is created.
//     A lease is its owner's (owner.go). Whoever serves the API asks Authorize about
//     each message before a handler sees it; a handler refuses calls of nobody's.
//   - What of etcd's API is not served is refused by name, with what to use
//     instead.
//
// It does not promise etcd's storage: a snapshot is a Leasehold backup, which
// etcd's own tools cannot restore.
//
// # Goroutines
//
// Run starts one for the relay to the leader, which keeps one more to receive
// while a stream is open, one for the hub of the watches, one for the queues of
// waiters (unless it is given some), one that looks whether there is a leader, and
// one that serves the JSON gateway, with gRPC's own for its one connection; nothing
// is started for a call that waits in a queue. On the leader,
// each follower's relay has gRPC's own, which sends, one that receives, and one
// per call under way, within a bound. Per Watch and LeaseKeepAlive stream: gRPC's own
// and those that their files tell.
package etcdapi
