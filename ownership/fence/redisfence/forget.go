package redisfence

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-dev/leasehold/ownership/fence"
)

// Forget removes the marks of keys whose token is below a bound, and returns
// how many. It compares and removes in one step, so a mark that has been
// raised to the bound or above in the meantime stays.
//
// A mark is needed as long as somebody may still write under a token lower
// than it. So the bound must be a token below which no lease can write any
// more: the lowest token that any worker holds, once every worker that has lost
// a lease has stopped or been restarted since. Tokens rise across the whole
// cluster, so one bound is good for all keys. With a bound that is too high, a
// writer that wakes up late is accepted; there is no way to notice.
//
// Partitions need no Forget, their number is fixed. It is for resource names
// that come and go, such as one per job.
func (f *Fence) Forget(ctx context.Context, below fence.Token, keys ...fence.Key) (int, error) {
	if below == 0 || below > fence.MaxToken {
		return 0, fmt.Errorf("forget marks: %w: bound is %d, want a token from 1 to %d", fence.ErrInvalid, below, fence.MaxToken)
	}
	removed := 0
	for batch := range slices.Chunk(keys, claimBatch) {
		calls := make([]call, len(batch))
		for i, k := range batch {
			calls[i] = call{keys: []any{f.MarkKey(k)}, args: []any{below.String()}}
		}
		answers, err := f.many(ctx, forgetScript, calls)
		if err != nil {
			return removed, fmt.Errorf("forget %d marks, %d removed so far: %w", len(keys), removed, err)
		}
		for _, a := range answers {
			if a == int64(1) {
				removed++
			}
		}
	}
	return removed, nil
}

// Each calls fn for every mark under the prefix of f, in no order; a mark that
// is written meanwhile may be missed, or come twice. It reads all keys of the
// server in small steps (SCAN), so it is for clean-up and for counting, not for
// work. It stops at the first error of fn and returns it. A damaged mark
// ends it with a *CorruptError.
func (f *Fence) Each(ctx context.Context, fn func(fence.Key, fence.Mark) error) error {
	c, ok := f.client.(*redis.ClusterClient)
	if !ok {
		return f.each(ctx, f.client, fn)
	}
	var mu sync.Mutex // the masters are read at once, fn is called by one at a time
	return c.ForEachMaster(ctx, func(ctx context.Context, one *redis.Client) error {
		return f.each(ctx, one, func(k fence.Key, m fence.Mark) error {
			mu.Lock()
			defer mu.Unlock()
			return fn(k, m)
		})
	})
}

func (f *Fence) each(ctx context.Context, c redis.Cmdable, fn func(fence.Key, fence.Mark) error) error {
	var cursor uint64
	for {
		var names []string
		err := f.await(ctx, func() (err error) {
			names, cursor, err = c.Scan(ctx, cursor, globEscape(f.prefix)+"{*", claimBatch).Result()
			return err
		})
		if err != nil {
			return fmt.Errorf("scan marks: %w", err)
		}
		var keys []fence.Key
		for _, name := range names {
			if k, ok := f.parse(name); ok {
				keys = append(keys, k)
			}
		}
		if err := f.show(ctx, c, keys, fn); err != nil {
			return err
		}
		if cursor == 0 {
			return nil
		}
	}
}

// show reads the marks of some keys in one round trip.
func (f *Fence) show(ctx context.Context, c redis.Cmdable, keys []fence.Key, fn func(fence.Key, fence.Mark) error) error {
	if len(keys) == 0 {
		return nil
	}
	cmds := make([]*redis.SliceCmd, len(keys))
	pipe := c.Pipeline()
	for i, k := range keys {
		cmds[i] = pipe.HMGet(ctx, f.MarkKey(k), "token", "owner")
	}
	err := f.await(ctx, func() error {
		_, err := pipe.Exec(ctx)
		return err
	})
	if err != nil && !redis.HasErrorPrefix(err, "WRONGTYPE") {
		return fmt.Errorf("read marks: %w", err)
	}
	for i, k := range keys {
		if redis.HasErrorPrefix(cmds[i].Err(), "WRONGTYPE") {
			return &CorruptError{Key: k, Redis: f.MarkKey(k), Field: "type", Value: "no hash"}
		}
		m, err := f.mark(k, cmds[i].Val())
		if err != nil {
			return err
		}
		if m.Token == 0 {
			continue // gone since the scan
		}
		if err := fn(k, m); err != nil {
			return err
		}
	}
	return nil
}

// globEscape makes SCAN's pattern match a prefix as it is.
func globEscape(s string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`).Replace(s)
}
