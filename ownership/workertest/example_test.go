package workertest_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/fence"
	"github.com/leasehold-dev/leasehold/ownership/worker"
	"github.com/leasehold-dev/leasehold/ownership/workertest"
)

// book is the program under test: its handler gathers lines and writes them to
// a guarded resource, when asked to hand over at the latest.
type book struct {
	guard *fence.Memory
	lines chan string
	pages []string // written, under the guard
}

func (b *book) handle(ctx context.Context, l *worker.Lease) error {
	var open []string
	for {
		select {
		case line := <-b.lines:
			open = append(open, line)
			if line == "." { // end of a page
				if err := b.flush(l, open); err != nil {
					return err
				}
				open = nil
			}
		case <-l.Draining(): // a planned move: still the owner, flush
			return b.flush(l, open)
		case <-ctx.Done(): // not the owner any more: what is open is the next one's
			return context.Cause(ctx)
		}
	}
}

func (b *book) flush(l *worker.Lease, lines []string) error {
	return b.guard.Do(l.Stamp(), func() error {
		b.pages = append(b.pages, lines...)
		return nil
	})
}

func newBook() *book { return &book{guard: fence.NewMemory(nil), lines: make(chan string)} }

// A complete test of a handler: it flushes in a planned move.
func TestExampleDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv, b := workertest.NewServer(t, workertest.Strict("books", 4)), newBook()
		srv.Start(srv.Config("w1"), "books", b.handle, worker.Claim(b.guard))
		token := srv.Grant("w1", "books", 2)
		b.lines <- "It was a bright cold day"
		srv.Drain(token, 10*time.Second)
		if e := srv.AwaitReleased(token); e.Cause != workertest.CauseDrained {
			t.Errorf("given back as %v", e)
		}
		if len(b.pages) != 1 {
			t.Errorf("pages %q: the open line was not flushed", b.pages)
		}
	})
}

// It stops without a write when the session has expired.
func TestExampleExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv, b := workertest.NewServer(t, workertest.Strict("books", 4)), newBook()
		srv.Start(srv.Config("w1"), "books", b.handle, worker.Claim(b.guard))
		token := srv.Grant("w1", "books", 2)
		b.lines <- "It was a bright cold day"
		srv.Expire("w1")
		if err := srv.AwaitReturned(token); !errors.Is(err, worker.ErrExpired) {
			t.Errorf("the handler returned %v", err)
		}
		if len(b.pages) != 0 {
			t.Errorf("pages %q were written by a worker that was not the owner", b.pages)
		}
		srv.AwaitRunning(srv.Grant("w1", "books", 2)) // the worker is back by itself
	})
}

// A process that was stopped does not know that its lease is over: its context
// lives, Check says yes. Only the guard refuses its write.
func TestExampleZombie(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv, old, heir := workertest.NewServer(t, workertest.Strict("books", 4)), newBook(), newBook()
		heir.guard = old.guard // one resource
		srv.Start(srv.Config("w1"), "books", old.handle, worker.Claim(old.guard))
		srv.Start(srv.Config("w2"), "books", heir.handle, worker.Claim(heir.guard))
		first := srv.Grant("w1", "books", 2)
		old.lines <- "It was a bright cold day"
		srv.Pause("w1")
		srv.AwaitExpired("w1")
		second := srv.Grant("w2", "books", 2)
		srv.AwaitRunning(second) // and so has claimed
		old.lines <- "."         // the zombie writes on
		if err := srv.AwaitReturned(first); !errors.Is(err, fence.ErrStale) {
			t.Errorf("the zombie's write: %v, want ErrStale", err)
		}
		if len(old.pages) != 0 {
			t.Errorf("the zombie has written %q", old.pages)
		}
		srv.Resume("w1")
	})
}
