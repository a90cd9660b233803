package worker

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/fence"
	"github.com/leasehold-dev/leasehold/ring/keyrange"
)

// Lease is the right of this worker to one partition, under one token. Its
// methods are safe for concurrent use and do no I/O. It stays readable after
// it has ended.
type Lease struct {
	space     *space
	partition uint32
	token     fence.Token
	previous  string
	session   uint64
	index     uint64 // raft index the grant came with; a list older than that cannot take it back

	draining chan struct{} // closed by the loop, once
	drainBy  atomic.Int64  // Unix nanoseconds; set before draining is closed
	cause    atomic.Pointer[error]
	ready    atomic.Int32 // one of readyNo, readyYes, readyOver

	// ctx and cancel are made by the loop before the handler's goroutine starts.
	ctx    context.Context
	cancel context.CancelCauseFunc

	slot slot // the loop's own
}

const (
	readyNo int32 = iota
	readyYes
	readyOver
)

// Keyspace is the name of the keyspace.
func (l *Lease) Keyspace() string { return l.space.name }

// Partition is the number of the partition, from 0.
func (l *Lease) Partition() uint32 { return l.partition }

// Partitions is how many the keyspace has.
func (l *Lease) Partitions() uint32 { return l.space.partitions }

// Range is the share of hashes (xxhash64 of a key) that belongs to the
// partition, both ends included.
func (l *Lease) Range() (first, last uint64) {
	return keyrange.Range(l.partition, l.space.partitions)
}

// Contains reports whether a key belongs to the partition.
func (l *Lease) Contains(key []byte) bool {
	return keyrange.Partition(key, l.space.partitions) == l.partition
}

// Session is the id of the session that the lease was granted to. Keys of the
// coordination API can be tied to it, with clientv3.WithLease(
// clientv3.LeaseID(l.Session())): they are deleted when the session ends, so
// that what an owner tells about itself goes with it.
func (l *Lease) Session() uint64 { return l.session }

// Token is the fencing token: give it to the resource with every write.
func (l *Lease) Token() fence.Token { return l.token }

// Previous is the worker id of the owner before, "" if there was none.
func (l *Lease) Previous() string { return l.previous }

// Stamp is what a guard wants to see.
func (l *Lease) Stamp() fence.Stamp {
	return fence.Stamp{
		Keyspace:  l.space.name,
		Partition: l.partition,
		Token:     l.token,
		Owner:     l.space.owner,
	}
}

// Draining is closed when the partition shall be handed over: the worker is
// still the owner, and should finish what it has begun and return nil before
// DrainBy.
func (l *Lease) Draining() <-chan struct{} { return l.draining }

// DrainBy is when the context ends if the handler has not returned by then. It
// is the zero time until Draining is closed.
func (l *Lease) DrainBy() time.Time {
	ns := l.drainBy.Load()
	if ns == 0 {
		return time.Time{}
	}
	return time.Unix(0, ns)
}

// TTL is the TTL of the session under which the lease is held: for how long a
// worker that is not heard of keeps its partitions. It is one for all leases of
// a worker, and becomes shorter when the worker joins a keyspace of a shorter
// one.
func (l *Lease) TTL() time.Duration { return time.Duration(l.space.tenure.ttl.Load()) }

// Deadline is when the lease's context ends if no further keep-alive is
// acknowledged, as a reading of the worker's clock ([Config.Clock]; by default
// bootclock.Boot, which also runs while the machine is suspended). It moves on
// with each acknowledgement, about every quarter of the TTL, and StopGrace and
// the margin are taken off already. It is for those who watch over something
// that cannot watch a context, such as a child process. DrainBy may come
// earlier. ok is false once the lease has ended.
func (l *Lease) Deadline() (at time.Duration, ok bool) {
	if l.ended() != nil {
		return 0, false
	}
	return l.space.tenure.deadline()
}

// Check reports whether the lease is held now, by the local clock alone. Call
// it right before a write; nil does not replace the token, because the process
// may be paused between the two.
func (l *Lease) Check() error {
	if err := l.ended(); err != nil {
		return err
	}
	return l.space.tenure.check()
}

// ended is why the lease has ended, nil if it has not.
func (l *Lease) ended() error {
	if p := l.cause.Load(); p != nil {
		return *p
	}
	return nil
}

// Ready says that the handler has set up what it needs. It is only counted and
// shown (`leasehold workers ls`); nothing waits for it.
func (l *Lease) Ready() {
	if l.ready.CompareAndSwap(readyNo, readyYes) {
		l.space.ready.Add(1)
	}
}

func (l *Lease) unready() {
	if l.ready.Swap(readyOver) == readyYes {
		l.space.ready.Add(-1)
	}
}

type leaseKey struct{}

// leaseContext is a context.WithValue that knows its one key.
type leaseContext struct {
	context.Context
	lease *Lease
}

func (c *leaseContext) Value(key any) any {
	if key == (leaseKey{}) {
		return c.lease
	}
	return c.Context.Value(key)
}

// FromContext returns the lease that a handler's context belongs to.
func FromContext(ctx context.Context) (*Lease, bool) {
	l, ok := ctx.Value(leaseKey{}).(*Lease)
	return l, ok
}

// TokenFrom returns the stamp of the lease that ctx belongs to, for code far
// below the handler that writes to a guarded resource.
func TokenFrom(ctx context.Context) (fence.Stamp, bool) {
	l, ok := FromContext(ctx)
	if !ok {
		return fence.Stamp{}, false
	}
	return l.Stamp(), true
}
