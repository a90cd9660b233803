package redisfence_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-dev/leasehold/ownership/fence"
	"github.com/leasehold-dev/leasehold/ownership/fence/redisfence"
	"github.com/leasehold-dev/leasehold/ownership/internal/dbtest"
)

func incr(ctx context.Context, f *redisfence.Fence, s fence.Stamp) error {
	_, err := f.Do(ctx, s, redisfence.Command("INCR", redisfence.Under(s.Key(), "n")))
	return err
}

func counted(t testing.TB, c redis.UniversalClient, k fence.Key) string {
	t.Helper()
	v, err := c.Get(context.Background(), string(redisfence.Under(k, "n"))).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		t.Fatal(err)
	}
	return v
}

// The connection breaks after the write and before its answer. The outcome is
// unknown, and the client library, which by itself would send the command
// again, must not: the write has happened once. To repeat it is the caller's
// decision, harmless for the mark and a second write.
func TestConnectionLostBeforeTheAnswer(t *testing.T) {
	_, direct := newFence(t)
	w := newWire(t, shared.Get(t).Addr())
	ctx := t.Context()
	s := at(17, 33, "a")
	f := redisfence.New(connect(t, w.addr, func(o *redis.Options) { o.PoolSize, o.MaxRetries = 1, 5 }))
	if err := f.Claim(ctx, []fence.Stamp{s}); err != nil {
		t.Fatal(err)
	}
	wantSeen(t, f, s.Key(), fence.Mark{Token: 33, Owner: "a"}) // pipelines have other connections
	for round := 1; round <= 2; round++ {
		w.mode.Store(cuttingOnce)
		err := incr(ctx, f, s)
		if !errors.Is(err, redisfence.ErrOutcomeUnknown) || errors.Is(err, redisfence.ErrNotRun) || errors.Is(err, fence.ErrStale) {
			t.Fatalf("got %v, want ErrOutcomeUnknown", err)
		}
		if !strings.Contains(err.Error(), s.String()) {
			t.Errorf("%q does not name the stamp", err)
		}
		if n := counted(t, direct, s.Key()); n != fmt.Sprint(round) {
			t.Fatalf("written %s times after %d calls", n, round)
		}
		wantSeen(t, f, s.Key(), fence.Mark{Token: 33, Owner: "a"})
	}
	// An idempotent write under the same stamp may be repeated.
	done := redisfence.Under(s.Key(), "done")
	for range 2 {
		if _, err := f.Do(ctx, s, redisfence.Command("HSET", done, "event-7", "paid")); err != nil {
			t.Fatal(err)
		}
	}
	if n := direct.HLen(ctx, string(done)).Val(); n != 1 {
		t.Errorf("%d entries, want 1", n)
	}
	// The trap this avoids: the library's own repetition of a script.
	plain := connect(t, w.addr, func(o *redis.Options) { o.PoolSize, o.MaxRetries = 1, 5 })
	if err := plain.Ping(ctx).Err(); err != nil {
		t.Fatal(err)
	}
	w.mode.Store(cuttingOnce)
	err := plain.Eval(ctx, `return redis.call('INCR', KEYS[1])`, []string{"plain"}).Err()
	if n := direct.Get(ctx, "plain").Val(); err != nil || n != "2" {
		t.Errorf("plain EVAL: %v, written %s times; if the library does not repeat scripts any more, the type unrepeated can go", err, n)
	}
}

// A context that ends while the answer is awaited ends the call at once, and a
// client's timeout does too; the outcome is unknown.
func TestContextAndTimeoutWhileWaiting(t *testing.T) {
	_, direct := newFence(t)
	w := newWire(t, shared.Get(t).Addr())
	s := at(17, 33, "a")
	patient := redisfence.New(connect(t, w.addr, func(o *redis.Options) { o.ReadTimeout = 5 * time.Second }))
	hasty := redisfence.New(connect(t, w.addr, func(o *redis.Options) { o.ReadTimeout, o.PoolSize = 2*time.Second, 1 }))
	if err := errors.Join(patient.Claim(t.Context(), []fence.Stamp{s}), hasty.Claim(t.Context(), []fence.Stamp{s})); err != nil {
		t.Fatal(err)
	}
	for _, f := range []*redisfence.Fence{patient, hasty} {
		wantSeen(t, f, s.Key(), fence.Mark{Token: 33, Owner: "a"}) // pipelines have other connections
	}
	w.mode.Store(swallowing)

	reason := errors.New("lease expired")
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() { // as soon as Redis has done it
		for w.lost.Load() == 0 {
			time.Sleep(time.Millisecond)
		}
		cancel(reason)
	}()
	err := incr(ctx, patient, s)
	if !errors.Is(err, redisfence.ErrOutcomeUnknown) || !errors.Is(err, reason) || !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: got %v", err)
	}
	if n := counted(t, direct, s.Key()); n != "1" {
		t.Errorf("written %s times", n)
	}
	short, stop := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer stop()
	if err := patient.Claim(short, []fence.Stamp{s}); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, redisfence.ErrOutcomeUnknown) {
		t.Errorf("claim past its deadline: got %v", err)
	}
	if _, err := patient.Seen(short, s.Key()); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("seen past its deadline: got %v", err)
	}
	// Without a goroutine the client's timeout is what ends it.
	inline := redisfence.New(connect(t, w.addr, func(o *redis.Options) { o.ReadTimeout = 2 * time.Second }), redisfence.WithoutGoroutine())
	w.mode.Store(passing)
	wantSeen(t, inline, s.Key(), fence.Mark{Token: 33, Owner: "a"})
	wantSeen(t, hasty, s.Key(), fence.Mark{Token: 33, Owner: "a"})
	w.mode.Store(swallowing)
	if err := incr(t.Context(), inline, s); !errors.Is(err, redisfence.ErrOutcomeUnknown) {
		t.Errorf("without a goroutine: got %v", err)
	}
	var timeout net.Error
	if err := incr(t.Context(), hasty, s); !errors.Is(err, redisfence.ErrOutcomeUnknown) || !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Errorf("timed out: got %v", err)
	}
	if n := counted(t, direct, s.Key()); n != "3" {
		t.Errorf("written %s times, want 3", n)
	}
}

// Nobody there: nothing was written, and the error says so.
func TestNoServer(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	client := redis.NewClient(&redis.Options{Addr: l.Addr().String(), MaxRetries: -1, DialerRetries: 1})
	f := redisfence.New(client)
	for _, closed := range []bool{false, true} {
		if closed {
			client.Close()
		}
		for what, err := range map[string]error{
			"write": push(t.Context(), f, at(17, 1, "a"), "x"),
			"claim": f.Claim(t.Context(), []fence.Stamp{at(17, 1, "a")}),
		} {
			if !errors.Is(err, redisfence.ErrNotRun) || errors.Is(err, redisfence.ErrOutcomeUnknown) {
				t.Errorf("%s, client closed %v: got %v", what, closed, err)
			}
		}
	}
}

// A server that has forgotten the script gets it again, for one write and for
// many claims, without a claim getting lost.
func TestForgottenScript(t *testing.T) {
	f, c := newFence(t)
	ctx := t.Context()
	for round := range 3 {
		if err := c.ScriptFlush(ctx).Err(); err != nil {
			t.Fatal(err)
		}
		if err := push(ctx, f, at(17, fence.Token(round+1), "a"), "x"); err != nil {
			t.Fatal(err)
		}
		if err := c.ScriptFlush(ctx).Err(); err != nil {
			t.Fatal(err)
		}
		stamps := make([]fence.Stamp, 2500)
		for i := range stamps {
			stamps[i] = at(uint32(1000+i), fence.Token(round+1), "a")
		}
		if err := f.Claim(ctx, stamps); err != nil {
			t.Fatal(err)
		}
		for _, p := range []uint32{1000, 2000, 3499} {
			wantSeen(t, f, fence.Key{Keyspace: "orders", Partition: p}, fence.Mark{Token: fence.Token(round + 1), Owner: "a"})
		}
	}
	// A user who may not load scripts sends it in full.
	if err := c.ACLSetUser(ctx, "noload", "on", "nopass", "~*", "+@all", "-script").Err(); err != nil {
		t.Fatal(err)
	}
	c.ScriptFlush(ctx)
	limited := redisfence.New(connect(t, shared.Get(t).Addr(), func(o *redis.Options) { o.Username, o.Password = "noload", "any" }))
	if err := limited.Claim(ctx, []fence.Stamp{at(1, 99, "a"), at(2, 99, "a")}); err != nil {
		t.Errorf("without SCRIPT LOAD: %v", err)
	}
}

// Missing permissions are named, and nothing is written.
func TestPermissions(t *testing.T) {
	_, c := newFence(t)
	ctx := t.Context()
	if err := c.ACLSetUser(ctx, "reader", "on", "nopass", "~*", "+@all", "-hset").Err(); err != nil {
		t.Fatal(err)
	}
	f := redisfence.New(connect(t, shared.Get(t).Addr(), func(o *redis.Options) { o.Username, o.Password = "reader", "any" }))
	err := push(ctx, f, at(17, 33, "a"), "x")
	if !errors.Is(err, redisfence.ErrNotRun) || !strings.Contains(err.Error(), "HSET") {
		t.Errorf("got %v", err)
	}
	if got := lines(t, c, orders17); len(got) != 0 {
		t.Errorf("written %q", got)
	}
}

// At maxmemory a step is refused before it has written anything: the mark is
// the first write, or stands already and the caller's first command is. What
// needs no memory still runs, a refusal of a stale token above all.
func TestOutOfMemoryLeavesNothingHalf(t *testing.T) {
	server := dbtest.StartRedis(t)
	c := connect(t, server.Addr())
	f := redisfence.New(c)
	ctx := t.Context()
	big := redisfence.Under(orders17, "big")
	if err := errors.Join(
		f.Claim(ctx, []fence.Stamp{at(17, 33, "a")}),
		push(ctx, f, at(17, 33, "a"), "before"),
		c.Set(ctx, string(big), strings.Repeat("x", 1<<20), 0).Err(),
		c.ConfigSet(ctx, "maxmemory", "1000000").Err(),
	); err != nil {
		t.Fatal(err)
	}
	for what, s := range map[string]fence.Stamp{"a new token": at(17, 34, "b"), "the token of the mark": at(17, 33, "a")} {
		err := push(ctx, f, s, "x")
		if !errors.Is(err, redisfence.ErrOutOfMemory) || !errors.Is(err, redisfence.ErrNotRun) {
			t.Errorf("%s: got %v, want ErrOutOfMemory", what, err)
		}
	}
	if err := f.Claim(ctx, []fence.Stamp{at(17, 34, "b")}); !errors.Is(err, redisfence.ErrOutOfMemory) {
		t.Errorf("claim: got %v", err)
	}
	wantSeen(t, f, orders17, fence.Mark{Token: 33, Owner: "a"})
	wantReason(t, push(ctx, f, at(17, 32, "z"), "x"), fence.ReasonStale)
	if got := lines(t, c, orders17); fmt.Sprint(got) != "[before]" {
		t.Errorf("written %v", got)
	}
	// A step that begins by freeing memory is run to its end.
	got, err := f.Do(ctx, at(17, 33, "a"), redisfence.Command("DEL", big), redisfence.Command("RPUSH", journal(orders17), "after"))
	if err != nil || fmt.Sprint(got) != "[1 2]" {
		t.Errorf("got %v, %v", got, err)
	}
}

// A server that is busy with somebody's endless script refuses ours; when that
// one has been killed the step goes through, once.
func TestBusyServer(t *testing.T) {
	server := dbtest.StartRedis(t, "--busy-reply-threshold", "20")
	c := connect(t, server.Addr())
	f := redisfence.New(c)
	ctx := t.Context()
	if err := f.Claim(ctx, []fence.Stamp{at(17, 33, "a")}); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	endless := connect(t, server.Addr(), func(o *redis.Options) { o.ReadTimeout, o.MaxRetries = time.Minute, -1 })
	go func() { ended <- endless.Eval(ctx, "while true do end", nil).Err() }()
	eventually(t, "BUSY", func() bool { return redis.HasErrorPrefix(c.Ping(ctx).Err(), "BUSY") })
	err := incr(ctx, f, at(17, 33, "a"))
	if !errors.Is(err, redisfence.ErrNotRun) || !redis.HasErrorPrefix(err, "BUSY") {
		t.Errorf("got %v, want BUSY and ErrNotRun", err)
	}
	if err := c.ScriptKill(ctx).Err(); err != nil {
		t.Fatal(err)
	}
	// Redis kills only what has not written, and says so in these words, which
	// TestWhatAnErrorSaysOfTheOutcome knows.
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "SCRIPT KILL") {
		t.Errorf("the endless script ended with %v", err)
	}
	eventually(t, "the script's end", func() bool { return c.Ping(ctx).Err() == nil })
	if err := incr(ctx, f, at(17, 33, "a")); err != nil || counted(t, c, orders17) != "1" {
		t.Errorf("%v, written %s times", err, counted(t, c, orders17))
	}
}

// A replica takes no writes; the error says what to connect to.
func TestReadOnlyReplica(t *testing.T) {
	primary, replica := startPair(t)
	p, r := connect(t, primary.Addr()), connect(t, replica.Addr(), func(o *redis.Options) { o.MaxRetries = -1 })
	ctx := t.Context()
	if err := redisfence.New(p).Claim(ctx, []fence.Stamp{at(17, 33, "a")}); err != nil {
		t.Fatal(err)
	}
	f := redisfence.New(r)
	eventually(t, "the mark on the replica", func() bool {
		m, err := f.Seen(ctx, orders17)
		return err == nil && m.Token == 33
	})
	for what, err := range map[string]error{
		"write with a new token":  push(ctx, f, at(17, 34, "b"), "x"),
		"write under the mark":    push(ctx, f, at(17, 33, "a"), "x"),
		"claim with a new token":  f.Claim(ctx, []fence.Stamp{at(17, 34, "b")}),
		"check":                   f.Check(ctx),
		"forget what is outdated": second(f.Forget(ctx, 99, orders17)),
	} {
		if !errors.Is(err, redisfence.ErrReadOnly) || !strings.Contains(err.Error(), "primary") {
			t.Errorf("%s: got %v, want ErrReadOnly", what, err)
		}
	}
	if got := lines(t, p, orders17); len(got) != 0 {
		t.Errorf("written %q", got)
	}
}

func second(_ int, err error) error { return err }

// Why Check refuses an allkeys policy: marks are evicted like anything else,
// and an old owner is accepted again.
func TestEvictionDropsMarks(t *testing.T) {
	server := dbtest.StartRedis(t, "--maxmemory", "4mb", "--maxmemory-policy", "allkeys-lru")
	c := connect(t, server.Addr())
	f := redisfence.New(c)
	ctx := t.Context()
	if err := f.Claim(ctx, []fence.Stamp{at(17, 34, "b")}); err != nil {
		t.Fatal(err)
	}
	wantReason(t, push(ctx, f, at(17, 33, "a"), "late"), fence.ReasonStale)
	n := 0
	eventually(t, "the mark's eviction", func() bool {
		pipe := c.Pipeline()
		for range 100 {
			n++
			pipe.Set(ctx, fmt.Sprint("cache:", n), strings.Repeat("x", 10_000), 0)
		}
		if _, err := pipe.Exec(ctx); err != nil {
			t.Fatal(err)
		}
		return c.Exists(ctx, f.MarkKey(orders17)).Val() == 0
	})
	if err := push(ctx, f, at(17, 33, "a"), "late"); err != nil {
		t.Errorf("after the eviction: %v", err)
	}
	if err := f.Check(ctx); err == nil {
		t.Error("Check finds nothing wrong")
	}
}

// Check finds set-ups under which marks get lost.
func TestCheck(t *testing.T) {
	server := dbtest.StartRedis(t)
	c := connect(t, server.Addr())
	f := redisfence.New(c)
	ctx := t.Context()
	for _, step := range []struct{ policy, memory, want string }{
		{"noeviction", "0", ""},
		{"noeviction", "100mb", ""},
		{"volatile-lru", "100mb", ""},
		{"allkeys-lru", "0", ""},
		{"allkeys-lru", "100mb", `maxmemory-policy is "allkeys-lru"`},
		{"allkeys-random", "100mb", `maxmemory-policy is "allkeys-random"`},
	} {
		if err := errors.Join(c.ConfigSet(ctx, "maxmemory-policy", step.policy).Err(), c.ConfigSet(ctx, "maxmemory", step.memory).Err()); err != nil {
			t.Fatal(err)
		}
		err := f.Check(ctx)
		if step.want == "" && err != nil || step.want != "" && (err == nil || !strings.Contains(err.Error(), step.want)) {
			t.Errorf("%s with %s: got %v", step.policy, step.memory, err)
		}
	}
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"one": server.Addr()}})
	defer ring.Close()
	if err := redisfence.New(ring).Check(ctx); err == nil || !strings.Contains(err.Error(), "Ring") {
		t.Errorf("ring: got %v", err)
	}
}
