package fencetest_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/leasehold-dev/leasehold/ownership/fence"
	"github.com/leasehold-dev/leasehold/ownership/fence/fencetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// journal is a resource in memory with writes of two steps. How it is guarded
// is what the tests vary.
type journal struct {
	mu       sync.Mutex // the resource's own
	row      sync.Mutex // held by a write in progress, if locked
	seen     fence.Mark
	accepted []fence.Stamp

	claims, checked, locked, rule, lies bool
}

func (j *journal) check(s fence.Stamp) error {
	if !j.checked {
		return nil
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	err := fence.Check(j.seen, s)
	if !j.rule && s.Token < j.seen.Token { // a guard that compares as text
		err = nil
		if s.Token.String() < j.seen.Token.String() {
			err = fence.ErrStale
		}
	}
	if err == nil && s.Token > j.seen.Token {
		j.seen = fence.Mark{Token: s.Token, Owner: s.Owner}
	}
	return err
}

func (j *journal) Claim(_ context.Context, stamps []fence.Stamp) error {
	if !j.claims {
		return nil
	}
	if j.locked {
		j.row.Lock()
		defer j.row.Unlock()
	}
	for _, s := range stamps {
		if err := j.check(s); err != nil {
			return err
		}
	}
	return nil
}

type write struct {
	j *journal
	s fence.Stamp
}

func (j *journal) Begin(_ context.Context, s fence.Stamp) (fencetest.Write, error) {
	if j.locked {
		j.row.Lock()
	}
	if err := j.check(s); err != nil {
		if j.locked {
			j.row.Unlock()
		}
		return nil, err
	}
	return &write{j, s}, nil
}

func (w *write) Commit(context.Context) error {
	w.j.mu.Lock()
	defer w.j.mu.Unlock()
	if !w.j.lies {
		w.j.accepted = append(w.j.accepted, w.s)
	}
	w.end()
	return nil
}

func (w *write) Crash() { w.end() }

func (w *write) end() {
	if w.j.locked {
		w.j.row.Unlock()
	}
}

func (j *journal) Accepted(context.Context) ([]fence.Stamp, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return append([]fence.Stamp(nil), j.accepted...), nil
}

// soundness of a journal's guard, to be broken one at a time.
func sound() *journal { return &journal{claims: true, checked: true, locked: true, rule: true} }

func shake(t *testing.T, brk func(*journal)) fencetest.Report {
	t.Helper()
	opt := fencetest.Options{Trials: 300, Blocked: 200 * time.Microsecond}
	return fencetest.Run(t, opt, func(int) (fencetest.Resource, error) {
		j := sound()
		brk(j)
		return j, nil
	})
}

// The harness is worth what it can find: each way to be wrong must show.
func TestFindsWhatIsWrong(t *testing.T) {
	if r := shake(t, func(*journal) {}); !r.OK() {
		t.Errorf("a sound guard: %s\n%s", r, r.First)
	} else if r.Refused == 0 || r.Crashed == 0 || r.Accepted == 0 {
		t.Errorf("a trial without refusals, crashes or writes shows nothing: %s", r)
	}
	for _, c := range []struct {
		name string
		brk  func(*journal)
	}{
		{"no guard at all", func(j *journal) { j.claims, j.checked, j.locked = false, false, false }},
		{"no lock between check and commit", func(j *journal) { j.locked = false }},
		{"no claim", func(j *journal) { j.claims = false }},
		{"compared as text", func(j *journal) { j.rule = false }},
	} {
		t.Run(c.name, func(t *testing.T) {
			if r := shake(t, c.brk); r.Stale == 0 || !strings.Contains(r.First, "STALE") {
				t.Errorf("not noticed: %s", r)
			}
		})
	}
	if r := shake(t, func(j *journal) { j.lies = true }); r.Untrue == 0 {
		t.Errorf("writes that were reported and are not there: %s", r)
	}
}

// stuck never lets the newest owner in.
type stuck struct{ journal }

func (s *stuck) Claim(context.Context, []fence.Stamp) error { return errors.New("not today") }

func TestFindsANewestOwnerThatCannotWrite(t *testing.T) {
	r := fencetest.Run(t, fencetest.Options{Trials: 3, Patience: 50 * time.Millisecond}, func(int) (fencetest.Resource, error) { return &stuck{}, nil })
	if r.Blocked != 3 {
		t.Errorf("want 3 blocked trials: %s", r)
	}
}
