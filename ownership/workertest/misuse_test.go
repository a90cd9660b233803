package workertest_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/fence"
	"github.com/leasehold-dev/leasehold/ownership/worker"
	"github.com/leasehold-dev/leasehold/ownership/workertest"
)

// scapegoat is a test that fails instead of the real one.
type scapegoat struct {
	testing.TB
	said []string
}

func (s *scapegoat) Fatalf(format string, args ...any) { s.Fatal(fmt.Sprintf(format, args...)) }
func (s *scapegoat) Fatal(args ...any) {
	s.said = append(s.said, fmt.Sprint(args...))
	runtime.Goexit()
}
func (s *scapegoat) Errorf(format string, args ...any) {
	s.said = append(s.said, fmt.Sprintf(format, args...))
}

// blamed runs f as a test of its own, clean-ups included, and returns what it
// failed with.
func blamed(t *testing.T, f func(t testing.TB)) string {
	s := &scapegoat{}
	t.Run("", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s.TB = t
			done := make(chan struct{})
			go func() {
				defer close(done)
				f(s)
			}()
			<-done
		})
	})
	return strings.Join(s.said, "\n")
}

// What a real server would not do stops the test, with what to do instead.
func TestMisuseSaysWhatToDo(t *testing.T) {
	server := func(t testing.TB) *workertest.Server {
		return workertest.NewServer(t, workertest.Strict("orders", 2), workertest.Fenced("cache", 1), workertest.Patience(5*time.Second))
	}
	running := func(t testing.TB) (*workertest.Server, fence.Token) {
		srv := server(t)
		srv.Start(srv.Config("w1"), "orders", work)
		token := srv.Grant("w1", "orders", 0)
		srv.AwaitRunning(token)
		return srv, token
	}
	for name, c := range map[string]struct {
		do   func(t testing.TB)
		want string
	}{
		"no such keyspace": {func(t testing.TB) { server(t).Grant("w1", "mails", 0) }, `Strict("mails", partitions)`},
		"no such partition": {func(t testing.TB) { server(t).Grant("w1", "orders", 2) },
			"partition 2 of keyspace orders: it has 2, numbered from 0"},
		"owner of no keyspace": {func(t testing.TB) { server(t).Owner("mails", 0) }, `Strict("mails", partitions)`},
		"worker not started": {func(t testing.TB) { server(t).Grant("w1", "orders", 0) },
			`run it with Start, or with worker.Join and srv.Config("w1")`},
		"worker of another keyspace": {func(t testing.TB) {
			srv, _ := running(t)
			srv.Grant("w1", "cache", 0)
		}, "no session of that worker has joined the keyspace within 5s"},
		"worker that has failed": {func(t testing.TB) {
			srv := server(t)
			stop := srv.Start(srv.Config("w1"), "mails", work)
			defer func() { _ = stop() }() // it has failed, as it should
			srv.Grant("w1", "orders", 0)
		}, "its Run has ended with: open session"},
		"owned already": {func(t testing.TB) {
			srv, _ := running(t)
			srv.Grant("w1", "orders", 0)
		}, "a partition has one owner: Drain or Expire it, and AwaitReleased("},
		"evicted": {func(t testing.TB) {
			srv := server(t)
			wait := make(chan struct{})
			stop := srv.Start(srv.Config("w1"), "orders", func(context.Context, *worker.Lease) error { <-wait; return nil })
			defer func() { close(wait); _ = stop() }() // it is evicted
			srv.AwaitRunning(srv.Grant("w1", "orders", 0))
			srv.Evict("w1")
			srv.Grant("w1", "orders", 1)
		}, "its session is evicted: start a worker with that id anew"},
		"strict revoked": {func(t testing.TB) {
			srv, token := running(t)
			srv.Revoke(token)
		}, "keyspace orders is strict"},
		"token of nobody": {func(t testing.TB) { server(t).Drain(12, time.Second) }, "no lease had that token: use what Grant returned"},
		"await nobody":    {func(t testing.TB) { server(t).AwaitRunning(12) }, "no lease had that token"},
		"over already": {func(t testing.TB) {
			srv, token := running(t)
			srv.Drain(token, time.Second)
			srv.AwaitReleased(token)
			srv.Drain(token, time.Second)
		}, "the lease is over: "},
		"drained twice": {func(t testing.TB) {
			srv := server(t)
			srv.Start(srv.Config("w1"), "orders", func(ctx context.Context, _ *worker.Lease) error { <-ctx.Done(); return nil })
			token := srv.Grant("w1", "orders", 0)
			srv.AwaitRunning(token)
			srv.Drain(token, time.Minute)
			srv.Drain(token, time.Second)
		}, "it is draining already"},
		"no budget": {func(t testing.TB) {
			srv, token := running(t)
			srv.Drain(token, 0)
		}, "the budget must be above 0"},
		"never runs": {func(t testing.TB) {
			srv := server(t)
			guard := fence.NewMemory(nil)
			_ = guard.Claim(context.Background(), []fence.Stamp{{Keyspace: "orders", Token: 1 << 40, Owner: "w9"}}) // valid
			srv.Start(srv.Config("w1"), "orders", work, worker.Claim(guard))
			srv.AwaitRunning(srv.Grant("w1", "orders", 0))
		}, "its handler will never run: "},
		"not released": {func(t testing.TB) {
			srv, token := running(t)
			srv.AwaitReleased(token)
		}, "not released after 5s: a strict lease is over when its handler has returned"},
		"paused twice": {func(t testing.TB) {
			srv, _ := running(t)
			srv.Pause("w1")
			srv.Pause("w1")
		}, "it is paused already: Resume ends that"},
		"resumed at work": {func(t testing.TB) {
			srv, _ := running(t)
			srv.Resume("w1")
		}, "it is not paused: Pause comes first"},
		"restored at work": {func(t testing.TB) {
			srv, _ := running(t)
			srv.RestoreConnection("w1")
		}, "it was not lost: LoseConnection comes first"},
		"expired while paused": {func(t testing.TB) {
			srv, _ := running(t)
			srv.Pause("w1")
			srv.Expire("w1")
		}, "AwaitExpired waits for its session's end"},
		"pause nobody":     {func(t testing.TB) { server(t).Pause("w1") }, `there is no such worker: srv.Config("w1") makes one`},
		"nobody to expire": {func(t testing.TB) { server(t).AwaitExpired("w1") }, "it has never had one"},
		"renewing":         {func(t testing.TB) { srv, _ := running(t); srv.AwaitExpired("w1") }, "it renews; Expire, LoseConnection and Pause keep it from that"},
		"keyspace twice":   {func(t testing.TB) { workertest.NewServer(t, workertest.Strict("a", 1), workertest.Fenced("a", 2)) }, `keyspace "a" is given twice`},
		"empty keyspace":   {func(t testing.TB) { workertest.NewServer(t, workertest.Strict("a", 0)) }, "0 partitions: at least 1"},
		"TTL too short":    {func(t testing.TB) { workertest.NewServer(t, workertest.TTL(time.Millisecond)) }, "TTL 1ms: at least 600ms"},
		"error not asked for": {func(t testing.TB) {
			srv := server(t)
			srv.Start(srv.Config("w1"), "mails", work)
		}, "if the test wants that, let it call stop and look at the error"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := blamed(t, c.do); !strings.Contains(got, c.want) {
				t.Errorf("failed with %q, want %q", got, c.want)
			}
		})
	}
	// A test that goes well fails for nothing.
	if got := blamed(t, func(t testing.TB) { running(t) }); got != "" {
		t.Errorf("failed with %q", got)
	}
}
