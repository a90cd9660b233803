package raftstore

import (
	"context"
	"fmt"
	"testing"
	"time"
)

// O-42 at its full size: ten thousand entries, and two servers that lose their
// data one after the other. The first is let in again without a vote. While it
// has none, the second one is one too many: nobody is elected, neither by the
// empty ones nor for them, and nothing that was acknowledged disappears when the
// lost data turns up again.
func TestO42SecondWipedServerIsOneTooMany(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3, onDisk, unsynced)
		defer c.stopAll()
		var marks []string
		for i := range 10_000 {
			if i%500 > 0 {
				c.do(nudge())
				continue
			}
			marks = append(marks, fmt.Sprint("m", i))
			c.do(mark(marks[len(marks)-1]))
		}
		l := c.leader()
		if n := l.store.appliedIndex.Load(); n < 10_000 {
			t.Fatalf("only %d entries", n)
		}
		first := c.follower()
		old := first.peer()
		first.wipe()
		first.start()
		c.change("add", func(ctx context.Context, at *Store) error { return at.AddPeer(ctx, first.peer()) })
		c.hasAll(marks...) // also on the new one
		c.do(mark("between"))

		var second *server
		for _, s := range c.servers {
			if s != l && s != first {
				second = s
			}
		}
		second.crash()
		kept := keepCopy(t, second.dir)
		second.wipe()
		second.start()
		c.within(5*time.Second, "end of the leadership", func() bool { return !l.store.IsLeader() })
		c.noLeader(time.Minute)
		if second.store.HasState() {
			t.Error("the second empty server has got state without a majority")
		}

		second.crash()
		kept()
		second.start()
		c.leader()
		c.do(mark("after"))
		c.replace(first, old)
		// Now the first one counts, and one more can be lost.
		second.crash()
		c.do(mark("alone"))
		for _, s := range []*server{l, first} {
			c.within(time.Second, "everything on "+s.id, func() bool {
				return len(missing(s.store, append(marks, "between", "after", "alone"))) == 0
			})
		}
	})
}
