package worker

import (
	"context"
	"testing"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/fence"
)

// deafGuard never answers.
type deafGuard struct{}

func (deafGuard) Claim(ctx context.Context, _ []fence.Stamp) error {
	<-ctx.Done()
	return ctx.Err()
}

// An observer hears of a grant when it has come, whatever the guard does.
func TestGrantIsToldBeforeItsClaim(t *testing.T) {
	inBubble(t, 10*time.Second, 1, func(b *bench) {
		told := make(chan uint32, 3)
		b.join(func(c *Config) {
			c.Observer.Granted = func(l *Lease, _ time.Duration) { told <- l.Partition() }
		})
		b.run(untilDone, Claim(deafGuard{}))
		b.c.grant(b.c.only(), 1, 2)
		b.c.grant(b.c.only(), 3)
		for _, want := range []uint32{1, 2, 3} {
			if got := <-told; got != want {
				t.Errorf("told of partition %d, want %d", got, want)
			}
		}
		if n := len(b.seen.starts); n != 0 {
			t.Errorf("%d contexts are live, none was claimed", n)
		}
		b.finish()
	})
}
