package chaos

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/leasehold-dev/leasehold/cmd/leasehold/internal/demo"
	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
)

// recovered waits, after a heal, until every server is ready and every
// partition has an order in the ledger that came after the heal: so it is
// owned, and can be written to. Being late is a problem; never is an error.
func (r *runner) recovered(ctx context.Context) error {
	healed := demo.Now()
	if m := r.Fleet.Lost(); m != nil {
		r.problem("%s has ended by itself: %v", m.Process.Name, m.Process.Err())
		if err := r.Fleet.Ended(ctx, m); err != nil {
			return err
		}
		if _, err := r.Fleet.Start(m.ID); err != nil {
			return err
		}
	}
	waiting, enough := context.WithTimeoutCause(ctx, patience, fmt.Errorf("not within %v", patience))
	defer enough()
	if err := r.serversBack(waiting); err != nil {
		return err
	}
	r.forgive(waiting)
	if err := r.written(waiting, r.Source.Arrived(healed)+1); err != nil {
		return fmt.Errorf("%w; %s", err, r.unowned(ctx))
	}
	took := demo.Now() - healed
	r.Record.Write(demo.Record{Kind: kindRecovered, Sent: healed})
	r.story.Note("all is written to again after %v", took.Round(time.Millisecond))
	if took > recoverWithin+ttl {
		r.problem("recovery took %v, more than %v", took.Round(time.Millisecond), recoverWithin+ttl)
	}
	return nil
}

// serversBack waits until all servers are ready. One that ended because its
// port was taken is started again.
func (r *runner) serversBack(ctx context.Context) error {
	for _, s := range r.Cluster.Servers() {
		if err := s.WaitReady(ctx); err != nil {
			select {
			case <-s.Process().Done():
			default:
				return err
			}
			if r.cfg.Network != nil { // nobody takes its ports
				r.problem("%s has ended by itself: %v", s.ID, s.Process().Err())
			}
			if err := r.Cluster.Restart(ctx, s); err != nil {
				return err
			}
		}
	}
	return nil
}

// written waits until the ledger has an order of every partition.
func (r *runner) written(ctx context.Context, seq int64) error {
	for p := range r.Source.Partitions {
		for {
			next, err := r.Ledger.Next(ctx, p)
			if err != nil {
				return err
			}
			if next > seq {
				break
			}
			if err := sleep(ctx, 20*time.Millisecond); err != nil {
				return fmt.Errorf("wait for order %d of orders/%d (at %d): %w", seq, p, next-1, err)
			}
		}
	}
	return nil
}

// forgive forgets the failures of partitions, as an operator does who knows
// why the workers died: partitions that are there whenever a worker dies are
// suspects, and are granted one at a time.
func (r *runner) forgive(ctx context.Context) {
	list, err := r.Client.Partitions().ListPartitions(ctx, &leaseholdv1.ListPartitionsRequest{Keyspace: demo.Keyspace})
	if err != nil {
		r.story.Note("partitions are not listed: %v", err)
		return
	}
	for _, p := range list.GetItems() {
		if p.GetFailures() == 0 {
			continue
		}
		_, err := r.Client.Partitions().RetryPartition(ctx, &leaseholdv1.RetryPartitionRequest{Keyspace: demo.Keyspace, Partition: p.GetPartition()})
		if err == nil {
			r.story.Note("orders/%d is forgiven %d failures", p.GetPartition(), p.GetFailures())
		}
	}
}

// unowned says which partitions have no owner and why, for an error.
func (r *runner) unowned(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	list, err := r.Client.Partitions().ListPartitions(ctx, &leaseholdv1.ListPartitionsRequest{Keyspace: demo.Keyspace, Unowned: true})
	if err != nil {
		return err.Error()
	}
	var all []string
	for _, p := range list.GetItems() {
		all = append(all, fmt.Sprintf("orders/%d: %s", p.GetPartition(), p.GetReason()))
	}
	return "unowned are: " + strings.Join(all, ", ")
}

// finish waits until the partitions are spread evenly, ends the stream and
// the workers, and compares the servers.
func (r *runner) finish(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, balanceWithin+2*patience, fmt.Errorf("no end within %v", balanceWithin+2*patience))
	defer cancel()
	if err := r.balanced(ctx); err != nil {
		return err
	}
	last, err := r.EndOrders()
	if err != nil {
		return err
	}
	r.last = last
	r.story.Step("the stream ends with order %d of each partition", last)
	waiting, enough := context.WithTimeoutCause(ctx, patience/3, fmt.Errorf("not within %v", patience/3))
	defer enough()
	if err := r.written(waiting, last); err != nil && (ctx.Err() != nil || !errors.Is(waiting.Err(), context.DeadlineExceeded)) {
		return err // else the audit says which orders are missing: that is a verdict
	}
	if err := r.CatchUp(ctx); err != nil {
		return err
	}
	if err := r.Fleet.TerminateAll(ctx); err != nil {
		return err
	}
	return r.agree(ctx)
}

// balanced waits until no worker has too many or too few. A partition that has
// moved stays where it is for two minutes, and so does one that was there when
// a worker died for one, so a short run does not wait for it.
func (r *runner) balanced(ctx context.Context) error {
	if r.cfg.Duration < longRun {
		r.story.Note("not waiting for balance: %s", r.holdings())
		return nil
	}
	began := demo.Now()
	names := r.Fleet.Processes()
	waiting, enough := context.WithTimeout(ctx, balanceWithin)
	defer enough()
	err := r.Board.Wait(waiting, func(v *demo.View) bool { return v.Owned(names) && v.Even(names) })
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		r.problem("not balanced %v after the last fault: %s", balanceWithin, r.holdings())
		return nil
	}
	r.story.Note("balanced after %v: %s", (demo.Now() - began).Round(time.Millisecond), r.holdings())
	return nil
}

// holdings is how many partitions each worker runs.
func (r *runner) holdings() string {
	var held []string
	r.Board.Look(func(v *demo.View) {
		for _, name := range r.Fleet.Processes() {
			held = append(held, fmt.Sprintf("%s %d", name, len(v.HeldBy(name))))
		}
	})
	return strings.Join(held, ", ")
}
