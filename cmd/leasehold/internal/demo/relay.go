package demo

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/fence"
	"github.com/leasehold-dev/leasehold/ownership/worker"
)

// relay is what a worker of the demo does with a partition: an ordinary
// handler that carries orders to the ledger, one by one.
type relay struct {
	id      string
	source  *Source
	ledger  *Ledger
	record  *Recorder
	gate    *gate
	closing *closing
	clock   libraryClock
	log     *slog.Logger
}

// handle goes on where the ledger ends: it alone knows what has been done.
func (r *relay) handle(ctx context.Context, l *worker.Lease) error {
	r.note(l, Record{Kind: KindRunning})
	next, err := r.ledger.Next(ctx, l.Partition())
	if err != nil {
		return r.over(ctx, err)
	}
	l.Ready()
	arrival := time.NewTimer(0)
	defer arrival.Stop()
	closed := r.closing.closed
	for wrote := false; ; {
		wait := r.source.Due(l.Partition(), next) - Now()
		if r.closing.over(next) {
			wait, closed = time.Hour, nil // nothing left to do but to keep the partition
		}
		arrival.Reset(wait)
		select {
		case <-ctx.Done(): // not the owner any more
			return context.Cause(ctx)
		case <-l.Draining(): // between two orders nothing is left undone
			r.note(l, Record{Kind: KindDraining})
			return nil
		case <-closed: // look at the end of the stream again
			closed = nil
			continue
		case <-arrival.C:
		}
		if r.closing.over(next) {
			continue
		}
		if err := l.Check(); err != nil {
			return r.over(ctx, err)
		}
		r.gate.pass(l.Partition(), uint64(l.Token()))
		// Whatever happens between Check and here, the guard decides. The write
		// does not end with ctx: one cut off half-way leaves its outcome open.
		err := r.ledger.Append(context.WithoutCancel(ctx), Order{
			Partition: l.Partition(), Seq: next, Token: uint64(l.Token()), Worker: r.id,
			Item: r.source.Item(l.Partition(), next),
		}, l.Stamp())
		if errors.Is(err, fence.ErrStale) {
			r.note(l, Record{Kind: KindRejected, Seq: next, Cause: err.Error()})
			return r.over(ctx, err)
		}
		if err != nil {
			return r.over(ctx, err)
		}
		if !wrote {
			wrote = true
			r.note(l, Record{Kind: KindWrote, Seq: next})
		}
		next++
	}
}

// over is the error of a handler that cannot go on: the end of its context
// explains all others. Only what the end does not explain is an error of the
// handler.
func (r *relay) over(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	r.log.Warn("handler gives up", "error", err)
	return err
}

// note writes a record about a lease.
func (r *relay) note(l *worker.Lease, rec Record) {
	rec.Partition, rec.Token = l.Partition(), uint64(l.Token())
	r.record.Write(rec)
}

// observer puts what the library tells into the evidence.
func (r *relay) observer() *worker.Observer {
	return &worker.Observer{
		ContextStart: func(l *worker.Lease, at time.Duration) {
			r.note(l, Record{Kind: KindStart, At: r.clock.shared(at)})
		},
		ContextEnd: func(l *worker.Lease, cause error, at time.Duration) {
			r.note(l, Record{Kind: KindEnd, At: r.clock.shared(at), Cause: fmt.Sprint(cause)})
		},
		HandlerReturn: func(l *worker.Lease, err error, at time.Duration) {
			r.note(l, Record{Kind: KindReturn, At: r.clock.shared(at), Cause: words(err)})
		},
		KeepAliveAcked: func(sent time.Duration) {
			r.record.Write(Record{Kind: KindAck, Sent: r.clock.shared(sent)})
		},
	}
}

func words(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
