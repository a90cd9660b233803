// Package queue keeps the queues of those who wait for a name: locks,
// semaphores and elections.
//
// A place in the queue of a name is a key: the name, a slash and the session in
// lower hex, attached to that session. etcd's own libraries make keys of the same
// form, so their waiters and ours stand in one queue. The order is that of
// creation, and the first so many (one, for a lock) have what they wait for.
// Other keys below the name count for nothing, also when they look alike but
// belong to another session or to none.
//
// # Promises
//
//   - A place keeps its order and its token for as long as its key lives, over
//     changes of leader, and whichever server its session asks.
//   - Tokens are drawn by the entry that creates a key, so they rise along a queue:
//     whoever has the lock later has a higher token.
//   - Nobody is told that it is among the first unless its key, and so its session,
//     lived at a moment that the whole cluster agrees on and that lies after the one
//     before it left.
//   - A waiter whose session ends, or whose key is deleted, hears of it at once.
//   - A call that is given up gives up the place that it made, unless another call
//     of the same session stands or has stood on it.
//   - A change costs the logarithm of the queue's length, however many wait, and wakes
//     exactly those whom it lets in.
//
// # What it does not promise
//
// A lock is no fence. Its owner may be paused, its session run out and the next
// one let in before it notices. What must not happen twice belongs behind a guard
// that compares tokens at the resource.
//
// Whoever takes the lock with etcd's own concurrency.Mutex or Election knows its
// key's create revision, and no token: the library does not read it. The revision
// rises along the queue of one lock, too, and can stand in as a fencing token for
// that, with three limits. It is a number of the keys, not of the cluster: a lease
// of a partition, or a lock taken through Lock, Campaign or Acquire, carries a
// token of another sequence, and the two must never be compared at one
// resource. A restore raises revisions only as far as it has to for keys, whereas
// tokens stay above whatever was granted before, also in a cluster that was wiped
// and founded again. And mutex.IsOwner says only that the key was there when it was
// looked at. Use the metadata leasehold-token of the Lock and Election services,
// AcquireResponse.token, or LEASEHOLD_TOKEN under `leasehold lock`, where a
// resource is to be fenced, and use one of the two sequences for one resource.
//
// # Goroutines
//
// Run is one, for all queues of a server; waiting is done by the callers' own.
//
// # Locks
//
// Queues.mu comes first, then the store's lock.
package queue
