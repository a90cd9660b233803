package worker

import (
	"log/slog"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
)

// effects are what a step wants done, in the order of the fields.
type effects struct {
	send    []*leaseholdv1.AttachRequest  // on the stream
	relay   *leaseholdv1.KeepAliveRequest // through another server
	drop    string                        // close the stream and find another: why
	granted []*Lease                      // received; kept only for an observer
	claim   []*Lease
	start   []*Lease
	end     []ended // cancel the context
	overrun []overrun
	acked   []acked
	failed  []failure // Runs that end alone
	logs    []logLine
	done    bool // all is over
	err     error
}

type ended struct {
	lease *Lease
	at    time.Duration // when it was decided; a handler that returned ended its own
}

type acked struct {
	sent time.Duration // boot clock
	left time.Duration // of the deadline that it replaces
}

type overrun struct {
	lease *Lease
	since time.Duration // since the context ended
}

type failure struct {
	run *run
	err error
}

type logLine struct {
	level slog.Level
	msg   string
	args  []any
}

// reset forgets the effects of a step when they have been carried out.
func (c *core) reset() {
	o := &c.out
	clear(o.send)
	clear(o.granted)
	clear(o.claim)
	clear(o.start)
	clear(o.end)
	*o = effects{
		send: o.send[:0], granted: o.granted[:0], claim: o.claim[:0], start: o.start[:0], end: o.end[:0],
		done: o.done, err: o.err,
	}
}
