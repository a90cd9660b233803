package fence

import (
	"context"
	"time"
)

type contextKey struct{}

type carried struct {
	stamp Stamp
	ttl   time.Duration
}

// NewContext returns a context that carries the stamp under which the work
// below it is done, and the TTL of its lease (0: unknown). The worker library
// gives such a context to every handler; anybody who has learnt a stamp in
// another way, such as a server that has read it from a request, uses it to
// hand the stamp on.
func NewContext(ctx context.Context, s Stamp, ttl time.Duration) context.Context {
	return context.WithValue(ctx, contextKey{}, carried{s, ttl})
}

// FromContext returns the stamp that ctx carries. A context that carries a TTL
// alone, as that of a claim does, has none.
func FromContext(ctx context.Context) (Stamp, bool) {
	c, _ := ctx.Value(contextKey{}).(carried)
	return c.stamp, c.stamp.Token != 0
}

// TTLFromContext returns the TTL of the lease that ctx belongs to, 0 if it is
// not known. Guards use it to bound how long a paused writer may keep a lock.
func TTLFromContext(ctx context.Context) time.Duration {
	c, _ := ctx.Value(contextKey{}).(carried)
	return c.ttl
}
