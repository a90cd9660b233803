package redisfence

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Check looks at how the servers are set up and says what would break the
// guard: a replica where a primary is expected, a Redis older than 5, or an
// eviction policy under which Redis may drop marks to make room. It refuses a
// redis.Ring too, which looks for a key on another server when one does not
// answer: no mark is there. Call it when the program starts. It needs the
// permission for INFO.
func (f *Fence) Check(ctx context.Context) error {
	switch c := f.client.(type) {
	case *redis.ClusterClient:
		return c.ForEachMaster(ctx, func(ctx context.Context, one *redis.Client) error { return f.check(ctx, one) })
	case *redis.Ring:
		return errors.New("client is a redis.Ring, want a single server, Sentinel or a Redis Cluster: when a server of a ring fails, its marks are looked for on another")
	}
	return f.check(ctx, f.client)
}

func (f *Fence) check(ctx context.Context, c redis.Cmdable) error {
	var text string
	err := f.await(ctx, func() (err error) {
		text, err = c.Info(ctx).Result()
		return err
	})
	if err != nil {
		return fmt.Errorf("ask Redis how it is set up: %w", err)
	}
	info := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			info[name] = value
		}
	}
	major, _, _ := strings.Cut(info["redis_version"], ".")
	if n, err := strconv.Atoi(major); err != nil || n < 5 {
		return fmt.Errorf("redis_version is %q, want 5 or later: older ones replicate scripts by running them again", info["redis_version"])
	}
	if role := info["role"]; role != "master" {
		return fmt.Errorf("role is %q, want master: %w, connect to its primary", role, ErrReadOnly)
	}
	if policy := info["maxmemory_policy"]; strings.HasPrefix(policy, "allkeys") && info["maxmemory"] != "0" {
		return fmt.Errorf("maxmemory-policy is %q, want noeviction or a volatile one: this one may drop marks, and a dropped mark lets an old owner write", policy)
	}
	return nil
}
