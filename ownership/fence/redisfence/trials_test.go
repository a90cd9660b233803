package redisfence_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-dev/leasehold/ownership/fence"
	"github.com/leasehold-dev/leasehold/ownership/fence/fencetest"
	"github.com/leasehold-dev/leasehold/ownership/fence/redisfence"
)

// variant is how the resource of a trial is guarded.
type variant int

const (
	guarded    variant = iota
	unguarded          // plain RPUSH
	checkFirst         // the mark is read, and the write follows later
)

// trialResource is a list in Redis. Each write pushes its stamp.
type trialResource struct {
	f       *redisfence.Fence
	c       redis.UniversalClient
	trial   int
	variant variant
}

func (r *trialResource) list(k fence.Key) redisfence.DataKey {
	return redisfence.Under(k, fmt.Sprint("trial:", r.trial))
}

func (r *trialResource) Claim(ctx context.Context, stamps []fence.Stamp) error {
	if r.variant == unguarded {
		return nil
	}
	return r.f.Claim(ctx, stamps)
}

func (r *trialResource) Begin(ctx context.Context, s fence.Stamp) (fencetest.Write, error) {
	if r.variant == checkFirst {
		seen, err := r.f.Seen(ctx, s.Key())
		if err != nil {
			return nil, err
		}
		if err := fence.Check(seen, s); err != nil {
			return nil, err
		}
	}
	return &trialWrite{r, s}, nil
}

func (r *trialResource) Accepted(ctx context.Context) ([]fence.Stamp, error) {
	var all []fence.Stamp
	for p := range uint32(3) {
		k := fence.Key{Keyspace: "trial", Partition: p}
		lines, err := r.c.LRange(ctx, string(r.list(k)), 0, -1).Result()
		if err != nil {
			return nil, err
		}
		for _, line := range lines {
			s := fence.Stamp{Keyspace: "trial", Partition: p}
			if _, err := fmt.Sscanf(line, "%d %s", &s.Token, &s.Owner); err != nil {
				return nil, err
			}
			all = append(all, s)
		}
	}
	return all, nil
}

type trialWrite struct {
	r *trialResource
	s fence.Stamp
}

func (w *trialWrite) Commit(ctx context.Context) error {
	key, line := w.r.list(w.s.Key()), fmt.Sprintf("%d %s", w.s.Token, w.s.Owner)
	if w.r.variant == guarded {
		_, err := w.r.f.Do(ctx, w.s, redisfence.Command("RPUSH", key, line))
		return err
	}
	return w.r.c.RPush(ctx, string(key), line).Err()
}

// Crash is the end of a writer that has sent nothing yet: a write in Redis has
// one step.
func (w *trialWrite) Crash() {}

func shake(t *testing.T, v variant) fencetest.Report {
	_, c := newFence(t)
	return fencetest.Run(t, fencetest.Options{Parallel: 2}, func(trial int) (fencetest.Resource, error) {
		f := redisfence.New(c, redisfence.WithPrefix(fmt.Sprintf("trial:%d:%d:", v, trial)))
		return &trialResource{f, c, trial, v}, nil
	})
}

// 1,000 random interleavings of old owner, new owner, pause, retry and crash.
func TestNoStaleWriteInAnyInterleaving(t *testing.T) {
	if r := shake(t, guarded); !r.OK() || r.Refused == 0 || r.Failed != 0 {
		t.Errorf("%s\n%s", r, r.First)
	}
}

// The same without the guard, and with one that checks first and writes later:
// the trials must notice.
func TestTrialsNoticeAMissingGuard(t *testing.T) {
	for name, v := range map[string]variant{"plain RPUSH": unguarded, "check, then write": checkFirst} {
		t.Run(name, func(t *testing.T) {
			if r := shake(t, v); r.Stale == 0 {
				t.Errorf("no stale write: %s", r)
			}
		})
	}
}
