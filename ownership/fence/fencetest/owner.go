package fencetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/fence"
)

// owner is one worker of a trial: a goroutine that does one step at a time.
// Its fields belong to the step that runs, and to the schedule between steps.
type owner struct {
	name  string
	stamp fence.Stamp
	steps chan func()

	busy    bool // a step is running
	claimed bool
	write   Write // in progress
	writes  int   // begun so far
	retries int
	over    bool
}

const (
	mostWrites  = 4
	mostRetries = 2
)

// play deals out steps until nobody has any left. A step that does not return
// soon waits for another owner, as a row's lock makes it; the others go on.
func (tr *trial) play(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*tr.opt.Patience)
	defer cancel()
	for _, o := range tr.owners {
		go func() {
			for step := range o.steps {
				step()
				tr.done <- o
			}
		}()
	}
	busy := 0
	wait := func(limit <-chan time.Time) bool {
		select {
		case o := <-tr.done:
			o.busy = false
			busy--
			return true
		case <-limit:
			return false
		}
	}
	// Every step ends, at the latest with ctx, and with it the goroutines.
	defer func() {
		for busy > 0 {
			wait(nil)
		}
		for _, o := range tr.owners {
			close(o.steps)
			if o.write != nil {
				o.write.Crash()
				o.write = nil
			}
		}
	}()
	for {
		for busy > 0 && wait(closed) { // takes in what has ended meanwhile
		}
		ready := slices.DeleteFunc(slices.Clone(tr.owners), func(o *owner) bool { return o.busy || o.over })
		if len(ready) == 0 {
			if busy == 0 {
				return nil
			}
			if !wait(after(ctx)) {
				return errors.New("no owner has made a step for a long time, each waits for another")
			}
			continue
		}
		o := ready[tr.rand.IntN(len(ready))]
		o.busy = true
		busy++
		o.steps <- tr.next(ctx, o)
		timer := time.NewTimer(tr.opt.Blocked)
		wait(timer.C)
		timer.Stop()
	}
}

var closed = func() <-chan time.Time {
	c := make(chan time.Time)
	close(c)
	return c
}()

func after(ctx context.Context) <-chan time.Time {
	d, _ := ctx.Deadline()
	return time.After(time.Until(d) + time.Second)
}

// next chooses what an owner does. All chance is drawn here, in the schedule's
// goroutine.
func (tr *trial) next(ctx context.Context, o *owner) func() {
	dice := tr.rand.IntN(10)
	switch {
	case !o.claimed:
		return func() { tr.claim(ctx, o) }
	case o.write == nil && (o.writes >= mostWrites || o.writes > 0 && dice == 0):
		return func() { tr.retire(o) }
	case o.write == nil:
		o.writes++
		tr.report.Writes++
		return func() { tr.begin(ctx, o, dice < 5) }
	case dice == 0:
		tr.report.Crashed++
		tr.tally(o.stamp, nil, true)
		return func() { tr.crash(o) }
	default:
		return func() { tr.commit(ctx, o, dice < 5) }
	}
}

func (tr *trial) claim(ctx context.Context, o *owner) {
	err := tr.res.Claim(ctx, []fence.Stamp{o.stamp})
	tr.say(o, "claim: %v", outcome(err))
	switch {
	case err == nil:
		seen, err := tr.res.Accepted(ctx)
		if err != nil {
			tr.say(o, "read what was accepted: %v", err)
			tr.fail()
			o.over = true
			return
		}
		o.claimed = true
		tr.mu.Lock()
		tr.claims = append(tr.claims, completed{o.stamp, len(seen)})
		tr.mu.Unlock()
	case errors.Is(err, fence.ErrStale):
		tr.refused()
		o.over = true
	default:
		tr.fail()
		o.retries++
		o.over = o.retries > mostRetries
	}
}

func (tr *trial) begin(ctx context.Context, o *owner, retry bool) {
	w, err := tr.res.Begin(ctx, o.stamp)
	tr.say(o, "begin a write: %v", outcome(err))
	switch {
	case err == nil:
		o.write = w
	case errors.Is(err, fence.ErrStale):
		tr.refused()
		tr.again(o, retry)
	default:
		tr.fail()
		tr.again(o, retry)
	}
}

func (tr *trial) commit(ctx context.Context, o *owner, retry bool) {
	w := o.write
	o.write = nil
	err := w.Commit(ctx)
	tr.say(o, "commit: %v", outcome(err))
	tr.tally(o.stamp, err, false)
	switch {
	case err == nil:
	case errors.Is(err, fence.ErrStale):
		tr.refused()
		tr.again(o, retry)
	default:
		tr.fail()
		tr.again(o, retry)
	}
}

// again is what an owner does that was refused or failed: it gives up, or, as
// a zombie does that has not understood, it tries once more.
func (tr *trial) again(o *owner, retry bool) {
	o.retries++
	o.over = !retry || o.retries > mostRetries
}

func (tr *trial) crash(o *owner) {
	o.write.Crash()
	o.write = nil
	o.over = true
	tr.say(o, "dies in the middle of its write")
}

func (tr *trial) retire(o *owner) {
	o.over = true
	tr.say(o, "is done")
}

func (tr *trial) refused() {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.report.Refused++
}

func (tr *trial) fail() {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.report.Failed++
}

// tally notes what the owner of a stamp has been told of a write.
func (tr *trial) tally(s fence.Stamp, err error, crashed bool) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	switch told := tr.results[s]; {
	case crashed, err != nil && !errors.Is(err, fence.ErrStale):
		told.open++
	case err == nil:
		told.accepted++
	}
}

// finish lets one more owner come, newer than all, and expects it to get
// through whatever the others have left behind.
func (tr *trial) finish(ctx context.Context) error {
	last := &owner{stamp: tr.owners[len(tr.owners)-1].stamp}
	last.stamp.Token++
	last.stamp.Owner = "wz"
	tr.results[last.stamp] = &tally{}
	ctx, cancel := context.WithTimeout(ctx, tr.opt.Patience)
	defer cancel()
	for ; ctx.Err() == nil; pause(ctx) {
		if last.retries = 0; !last.claimed {
			tr.claim(ctx, last)
		}
		if last.over {
			break // refused, although there is nobody newer
		}
		if !last.claimed {
			continue
		}
		tr.report.Writes++
		if tr.begin(ctx, last, true); last.write == nil {
			continue
		}
		last.retries = 0
		if tr.commit(ctx, last, true); tr.results[last.stamp].accepted > 0 {
			return nil
		}
	}
	if err := context.Cause(ctx); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("last owner: %w", err)
	}
	tr.report.Blocked++
	tr.say(last, "BLOCKED: the newest owner could not write")
	return nil
}

// pause is between two tries of the last owner.
func pause(ctx context.Context) {
	select {
	case <-time.After(5 * time.Millisecond):
	case <-ctx.Done():
	}
}

func outcome(err error) string {
	if err == nil {
		return "ok"
	}
	return err.Error()
}
