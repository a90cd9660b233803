package redisfence_test

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-dev/leasehold/ownership/fence"
	"github.com/leasehold-dev/leasehold/ownership/fence/redisfence"
	"github.com/leasehold-dev/leasehold/ownership/internal/dbtest"
)

// startPair starts a primary and a replica that follows it.
func startPair(t testing.TB) (primary, replica *dbtest.Instance) {
	t.Helper()
	primary = dbtest.StartRedis(t, "--repl-diskless-sync-delay", "0")
	replica = dbtest.StartRedis(t)
	follow(t, connect(t, replica.Addr()), primary.Host, strconv.Itoa(primary.Port))
	return primary, replica
}

func follow(t testing.TB, replica *redis.Client, host, port string) {
	t.Helper()
	if err := replica.Do(t.Context(), "REPLICAOF", host, port).Err(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "replication", func() bool {
		info, err := replica.Info(t.Context(), "replication").Result()
		return err == nil && strings.Contains(info, "master_link_status:up")
	})
}

// failover is a Redis with a replica behind a network that can be held up.
type failover struct {
	old, promoted *redis.Client
	lag           func() // from here on nothing reaches the replica
	happens       func() // the primary dies, the replica becomes the primary
}

func newFailover(t *testing.T) failover {
	t.Helper()
	primary := dbtest.StartRedis(t, "--repl-diskless-sync-delay", "0")
	replica := dbtest.StartRedis(t)
	w := newWire(t, primary.Addr())
	f := failover{old: connect(t, primary.Addr()), promoted: connect(t, replica.Addr())}
	host, port, _ := strings.Cut(w.addr, ":")
	follow(t, f.promoted, host, port)
	// The replica has what came before.
	if err := f.old.Set(t.Context(), "before", "yes", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if n, err := f.old.Wait(t.Context(), 1, 10*time.Second).Result(); n != 1 || err != nil {
		t.Fatalf("the replica does not follow: %d, %v", n, err)
	}
	f.lag = func() { w.mode.Store(swallowing) }
	f.happens = func() {
		primary.Kill()
		if err := f.promoted.Do(t.Context(), "REPLICAOF", "NO", "ONE").Err(); err != nil {
			t.Fatal(err)
		}
		if f.promoted.Get(t.Context(), "before").Val() != "yes" {
			t.Fatal("the replica has lost what it had")
		}
	}
	return f
}

// A lock by SET NX PX has two holders after a failover, each of whom has been
// told OK and whose time is not up; a token counted in the same Redis is given
// out twice. What saves the data is a fence at the resource, with tokens that
// do not come from there: the older write bounces.
func TestLockInRedisHasTwoHoldersAfterAFailover(t *testing.T) {
	r := newFailover(t)
	ctx := t.Context()
	const ttl = 30 * time.Second
	type holder struct {
		name  string
		until time.Time // by its own clock
		count int64     // INCR beside the lock, the usual advice
	}
	lock := func(c *redis.Client, name string) holder {
		t.Helper()
		until := time.Now().Add(ttl)
		if ok, err := c.SetNX(ctx, "lock:orders/17", name, ttl).Result(); err != nil || !ok {
			t.Fatalf("%s does not get the lock: %v, %v", name, ok, err)
		}
		n, err := c.Incr(ctx, "lock:orders/17:token").Result()
		if err != nil {
			t.Fatal(err)
		}
		return holder{name, until, n}
	}

	r.lag()
	a := lock(r.old, "a")
	r.happens()
	b := lock(r.promoted, "b")

	now := time.Now()
	if !now.Before(a.until) || !now.Before(b.until) {
		t.Fatal("too slow: a lock has expired meanwhile")
	}
	if a.count != b.count {
		t.Errorf("tokens from Redis: %d and %d, expected the same one twice", a.count, b.count)
	}
	t.Logf("two holders at the same time: a for another %s with token %d, b for %s with token %d",
		a.until.Sub(now).Round(time.Second), a.count, b.until.Sub(now).Round(time.Second), b.count)

	// The resource, elsewhere. Leasehold had given a token 33 and b 34.
	resource := fence.NewMemory(nil)
	var written []string
	write := func(h holder, token fence.Token) error {
		s := at(17, token, h.name)
		return resource.Do(s, func() error { written = append(written, h.name); return nil })
	}
	if err := resource.Claim(ctx, []fence.Stamp{at(17, 33, "a")}); err != nil {
		t.Fatal(err)
	}
	if err := resource.Claim(ctx, []fence.Stamp{at(17, 34, "b")}); err != nil {
		t.Fatal(err)
	}
	wantReason(t, write(a, 33), fence.ReasonStale)
	if err := write(b, 34); err != nil {
		t.Fatal(err)
	}
	wantReason(t, write(a, 33), fence.ReasonStale)
	if fmt.Sprint(written) != "[b]" {
		t.Errorf("written by %v, want b alone", written)
	}
	// With the tokens that Redis counted, the fence could only say that
	// something is wrong: both are the same.
	second := fence.NewMemory(nil)
	if err := second.Claim(ctx, []fence.Stamp{at(17, fence.Token(b.count), "b")}); err != nil {
		t.Fatal(err)
	}
	wantReason(t, second.Claim(ctx, []fence.Stamp{at(17, fence.Token(a.count), "a")}), fence.ReasonOtherOwner)
}

// Marks are data of Redis and are lost in a failover like any other: together
// with the writes that they guarded, and then an old owner is accepted again.
// WAIT tells that it may come to that.
func TestFailoverLosesMarksTogetherWithTheData(t *testing.T) {
	r := newFailover(t)
	ctx := t.Context()
	before, after := redisfence.New(r.old), redisfence.New(r.promoted)
	if err := errors.Join(before.Claim(ctx, []fence.Stamp{at(17, 33, "a")}), push(ctx, before, at(17, 33, "a"), "a1")); err != nil {
		t.Fatal(err)
	}
	if n, err := r.old.Wait(ctx, 1, 10*time.Second).Result(); n != 1 || err != nil {
		t.Fatalf("%d, %v", n, err)
	}

	r.lag()
	if err := errors.Join(before.Claim(ctx, []fence.Stamp{at(17, 34, "b")}), push(ctx, before, at(17, 34, "b"), "b1")); err != nil {
		t.Fatal(err)
	}
	if n, err := r.old.Wait(ctx, 1, 200*time.Millisecond).Result(); n != 0 || err != nil {
		t.Errorf("WAIT says %d, %v; want 0 replicas", n, err)
	}
	wantReason(t, push(ctx, before, at(17, 33, "a"), "a2"), fence.ReasonStale)
	r.happens()

	wantSeen(t, after, orders17, fence.Mark{Token: 33, Owner: "a"})
	if got := lines(t, r.promoted, orders17); fmt.Sprint(got) != "[a1]" {
		t.Errorf("after the failover: %v", got)
	}
	if err := push(ctx, after, at(17, 33, "a"), "a2"); err != nil {
		t.Errorf("the old owner is refused (%v): the mark was not lost?", err)
	}
	// From the next claim on it is refused again.
	if err := after.Claim(ctx, []fence.Stamp{at(17, 34, "b")}); err != nil {
		t.Fatal(err)
	}
	wantReason(t, push(ctx, after, at(17, 33, "a"), "a3"), fence.ReasonStale)
	if got := lines(t, r.promoted, orders17); fmt.Sprint(got) != "[a1 a2]" {
		t.Errorf("in the end: %v", got)
	}
}
