package workertest_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/fence"
	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"github.com/leasehold-dev/leasehold/ownership/worker"
	"github.com/leasehold-dev/leasehold/ownership/workertest"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// work is a handler that does what it is told.
func work(ctx context.Context, l *worker.Lease) error {
	select {
	case <-l.Draining():
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// pass lets fake time go on.
func pass(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	<-timer.C
}

func TestTokensRise(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := workertest.NewServer(t, workertest.Strict("orders", 4), workertest.Fenced("cache", 1))
		srv.Start(srv.Config("w1"), "orders", work)
		srv.Start(srv.Config("w2"), "cache", work)
		var last fence.Token
		for range 3 {
			for p := range uint32(4) {
				token := srv.Grant("w1", "orders", p)
				if token <= last || token > fence.MaxToken {
					t.Fatalf("token %d after %d", token, last)
				}
				last = token
				srv.AwaitRunning(token)
				srv.Drain(token, time.Second)
				if e := srv.AwaitReleased(token); e.Token != token || e.Partition != p || e.Cause != workertest.CauseDrained {
					t.Errorf("released: %v", e)
				}
			}
			token := srv.Grant("w2", "cache", 0)
			if token <= last {
				t.Fatalf("token %d of another keyspace after %d", token, last)
			}
			last = token
			srv.Revoke(token)
		}
	})
}

// A resource has seen a higher token: it is reported, and the next is above it.
func TestReportedTokenRaisesTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := workertest.NewServer(t, workertest.Strict("orders", 1))
		guard := fence.NewMemory(nil)
		srv.Start(srv.Config("w1"), "orders", work, worker.Claim(guard))
		first := srv.Grant("w1", "orders", 0)
		srv.AwaitRunning(first)
		high := fence.Stamp{Keyspace: "orders", Token: first + 5000, Owner: "w9"}
		srv.Drain(first, time.Second)
		srv.AwaitReleased(first)
		if err := guard.Claim(t.Context(), []fence.Stamp{high}); err != nil {
			t.Fatal(err)
		}
		second := srv.Grant("w1", "orders", 0)
		if e := srv.AwaitReleased(second); e.Cause != workertest.CauseClaimRefused || e.Error == "" {
			t.Errorf("released: %v", e)
		}
		third := srv.Grant("w1", "orders", 0)
		if third <= high.Token {
			t.Errorf("token %d after %d was reported", third, high.Token)
		}
		srv.AwaitRunning(third)
	})
}

// Without a keep-alive a session lasts for its TTL from the last one that
// arrived, and the worker's contexts have ended before.
func TestSessionEndsAtItsDeadlineAndNotBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := workertest.NewServer(t, workertest.Strict("orders", 1))
		var acked, ended atomic.Int64
		cfg := srv.Config("w1")
		cfg.Observer.KeepAliveAcked = func(sent time.Duration) { acked.Store(int64(sent)) }
		told := cfg.Observer.ContextEnd
		cfg.Observer.ContextEnd = func(l *worker.Lease, cause error, at time.Duration) {
			ended.Store(int64(at))
			told(l, cause, at)
		}
		srv.Start(cfg, "orders", work)
		token := srv.Grant("w1", "orders", 0)
		srv.AwaitRunning(token)
		pass(24 * time.Second) // between two keep-alives: one may arrive and its answer not
		srv.LoseConnection("w1")
		if err := srv.AwaitContextEnd(token); !errors.Is(err, worker.ErrExpired) {
			t.Errorf("the context ended with %v", err)
		}
		if _, _, ok := srv.Owner("orders", 0); !ok {
			t.Error("the server let go before the worker did")
		}
		e := srv.AwaitReleased(token)
		if e.Kind != workertest.KindExpire || e.At != time.Duration(acked.Load())+10*time.Second {
			t.Errorf("%v, last keep-alive at %v", e, time.Duration(acked.Load()))
		}
		if before := e.At - time.Duration(ended.Load()); before < 400*time.Millisecond {
			t.Errorf("the context ended %v before the session", before)
		}
		srv.RestoreConnection("w1")
		srv.AwaitRunning(srv.Grant("w1", "orders", 0))
	})
}

// A paused process sees no time pass, nor its lease end; it hears of it when
// it goes on.
func TestPauseStopsTheWorkersClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := workertest.NewServer(t, workertest.Strict("orders", 1))
		leases := make(chan *worker.Lease, 1)
		srv.Start(srv.Config("w1"), "orders", func(ctx context.Context, l *worker.Lease) error {
			leases <- l
			return work(ctx, l)
		})
		srv.Start(srv.Config("w2"), "orders", work)
		first := srv.Grant("w1", "orders", 0)
		l := <-leases
		pass(3 * time.Second)
		srv.Pause("w1")
		srv.AwaitExpired("w1")
		second := srv.Grant("w2", "orders", 0)
		srv.AwaitRunning(second)
		pass(time.Minute)
		if err := l.Check(); err != nil {
			t.Errorf("Check = %v: a stopped process cannot know", err)
		}
		if _, ok := l.Deadline(); !ok {
			t.Error("the lease has no deadline")
		}
		srv.Resume("w1")
		if err := srv.AwaitReturned(first); !errors.Is(err, worker.ErrExpired) {
			t.Errorf("the handler returned %v", err)
		}
		if owner, token, _ := srv.Owner("orders", 0); owner != "w2" || token != second {
			t.Errorf("owned by %s under %d: the zombie's late release touched it", owner, token)
		}
		srv.Drain(second, time.Second)
		srv.AwaitReleased(second)
		srv.AwaitRunning(srv.Grant("w1", "orders", 0))
	})
}

// O-16: a process hangs, and is started anew under its id. The old one does not
// answer, so the new one takes over; it hears of that when it goes on.
func TestRestartBesideAPausedProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := workertest.NewServer(t, workertest.Strict("orders", 1))
		stop := srv.Start(srv.Config("w1"), "orders", work)
		first := srv.Grant("w1", "orders", 0)
		srv.AwaitRunning(first)
		srv.Pause("w1")
		srv.Start(srv.Config("w1"), "orders", work)
		if e := srv.AwaitReleased(first); e.Kind != workertest.KindExpire || e.At < 10*time.Second {
			t.Errorf("the strict lease of the old process: %v", e)
		}
		srv.AwaitRunning(srv.Grant("w1", "orders", 0))
		srv.Resume("w1")
		if err := srv.AwaitReturned(first); !errors.Is(err, worker.ErrExpired) && !errors.Is(err, worker.ErrSuperseded) {
			t.Errorf("the old process's handler returned %v", err)
		}
		pass(time.Second)
		if err := stop(); !errors.Is(err, worker.ErrSuperseded) {
			t.Errorf("the old process: Run = %v", err)
		}
	})
}

// A fenced lease is taken back while its worker is away. It is not on the list
// that the worker is sent when it is back, and ends by that.
func TestRevokedWhileAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := workertest.NewServer(t, workertest.Fenced("cache", 1))
		srv.Start(srv.Config("w1"), "cache", work)
		srv.Start(srv.Config("w2"), "cache", work)
		first := srv.Grant("w1", "cache", 0)
		srv.AwaitRunning(first)
		srv.LoseConnection("w1")
		srv.Revoke(first)
		srv.AwaitRunning(srv.Grant("w2", "cache", 0)) // both run: that is fenced
		srv.RestoreConnection("w1")
		if err := srv.AwaitReturned(first); !errors.Is(err, worker.ErrRevoked) {
			t.Errorf("the handler returned %v", err)
		}
	})
}

// A pause shorter than what is left of the TTL costs nothing.
func TestShortPauseKeepsTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := workertest.NewServer(t, workertest.Strict("orders", 1))
		srv.Start(srv.Config("w1"), "orders", work)
		token := srv.Grant("w1", "orders", 0)
		srv.AwaitRunning(token)
		srv.Pause("w1")
		pass(6 * time.Second)
		srv.Resume("w1")
		pass(time.Minute)
		if owner, now, _ := srv.Owner("orders", 0); owner != "w1" || now != token {
			t.Errorf("owned by %q under %d after a short pause", owner, now)
		}
	})
}

// A drain that comes while the worker is away is heard when it is back.
func TestDrainOfAWorkerThatIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := workertest.NewServer(t, workertest.Strict("orders", 1))
		srv.Start(srv.Config("w1"), "orders", work)
		token := srv.Grant("w1", "orders", 0)
		srv.AwaitRunning(token)
		srv.LoseConnection("w1")
		srv.Drain(token, 20*time.Second)
		pass(2 * time.Second)
		srv.RestoreConnection("w1")
		if e := srv.AwaitReleased(token); e.Cause != workertest.CauseDrained {
			t.Errorf("released: %v", e)
		}
	})
}

// When the time to drain is over, a fenced partition can be granted although
// the old handler goes on; a strict one cannot.
func TestDrainTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := workertest.NewServer(t, workertest.Strict("orders", 1), workertest.Fenced("cache", 1))
		finish := make(chan struct{})
		slow := func(context.Context, *worker.Lease) error {
			<-finish
			return nil
		}
		srv.Start(srv.Config("w1"), "orders", slow)
		srv.Start(srv.Config("w2"), "cache", slow)
		strict, fenced := srv.Grant("w1", "orders", 0), srv.Grant("w2", "cache", 0)
		srv.AwaitRunning(strict)
		srv.AwaitRunning(fenced)
		srv.Drain(strict, 5*time.Second)
		srv.Drain(fenced, 5*time.Second)
		if e := srv.AwaitReleased(fenced); e.At < 5*time.Second {
			t.Errorf("the fenced lease ended early: %v", e)
		}
		if err := srv.AwaitContextEnd(strict); !errors.Is(err, worker.ErrDrainTimeout) {
			t.Errorf("the strict context ended with %v", err)
		}
		pass(time.Minute)
		if _, _, ok := srv.Owner("orders", 0); !ok {
			t.Error("a strict lease was taken from a worker that lives")
		}
		close(finish)
		if e := srv.AwaitReleased(strict); e.Cause != workertest.CauseEnded {
			t.Errorf("released: %v", e)
		}
	})
}

// Several keyspaces in one worker, joined by the test itself, and Hold.
func TestWorkersOfTheTestsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := workertest.NewServer(t, workertest.Strict("orders", 2), workertest.Strict("mails", 2), workertest.Strict("nightly", 1))
		w, err := worker.Join(t.Context(), srv.Config("w1"))
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 2)
		for _, keyspace := range []string{"orders", "mails"} {
			go func() { done <- w.Run(t.Context(), keyspace, work) }()
		}
		a, b := srv.Grant("w1", "orders", 1), srv.Grant("w1", "mails", 0)
		srv.AwaitRunning(a)
		srv.AwaitRunning(b)
		if err := w.Leave(t.Context()); err != nil {
			t.Error(err)
		}
		for range 2 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		for _, token := range []fence.Token{a, b} {
			if e := srv.AwaitReleased(token); e.Cause != workertest.CauseDrained {
				t.Errorf("released: %v", e)
			}
		}
		holder, err := worker.Join(t.Context(), srv.Config("w2"))
		if err != nil {
			t.Fatal(err)
		}
		result := errors.New("the job's own")
		go func() {
			done <- holder.Hold(t.Context(), "nightly", func(context.Context, *worker.Lease) error { return result })
		}()
		srv.Grant("w2", "nightly", 0)
		if err := <-done; !errors.Is(err, result) {
			t.Errorf("Hold = %v", err)
		}
	})
}

// Previous tells the owner before, and a panic is what AwaitReturned returns.
func TestPreviousOwnerAndPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := workertest.NewServer(t, workertest.Strict("orders", 1))
		srv.Start(srv.Config("w1"), "orders", work)
		srv.Start(srv.Config("w2"), "orders", func(_ context.Context, l *worker.Lease) error { panic("after " + l.Previous()) })
		first := srv.Grant("w1", "orders", 0)
		srv.AwaitRunning(first)
		srv.Drain(first, time.Second)
		srv.AwaitReleased(first)
		second := srv.Grant("w2", "orders", 0)
		var panicked *worker.PanicError
		if err := srv.AwaitReturned(second); !errors.As(err, &panicked) || panicked.Value != "after w1" {
			t.Errorf("the handler returned %v", err)
		}
		if e := srv.AwaitReleased(second); e.Cause != workertest.CauseFailed {
			t.Errorf("released: %v", e)
		}
		var kinds []string
		for _, e := range srv.History() {
			if e.Keyspace != "" {
				kinds = append(kinds, e.Kind+" "+e.Worker)
			}
		}
		if got := fmt.Sprint(kinds); got != "[grant w1 drain w1 release w1 grant w2 release w2]" {
			t.Errorf("history %s", got)
		}
	})
}

// The test ends while a worker is paused and another is cut off: both are
// stopped all the same, and nothing is left running (see TestMain).
func TestNothingIsLeftRunning(t *testing.T) {
	t.Run("in a bubble", func(t *testing.T) { synctest.Test(t, leaveBehind) })
	t.Run("in real time", leaveBehind)
}

func leaveBehind(t *testing.T) {
	srv := workertest.NewServer(t, workertest.Strict("orders", 2), workertest.TTL(3*time.Second))
	srv.Start(srv.Config("w1"), "orders", work)
	srv.Start(srv.Config("w2"), "orders", work)
	srv.AwaitRunning(srv.Grant("w1", "orders", 0))
	srv.AwaitRunning(srv.Grant("w2", "orders", 1))
	srv.Pause("w1")
	srv.LoseConnection("w2")
}

// Outside a bubble time is real.
func TestExpiryInRealTime(t *testing.T) {
	srv := workertest.NewServer(t, workertest.Strict("orders", 1), workertest.TTL(3*time.Second))
	stop := srv.Start(srv.Config("w1"), "orders", work)
	token := srv.Grant("w1", "orders", 0)
	srv.AwaitRunning(token)
	srv.Expire("w1")
	if err := srv.AwaitReturned(token); !errors.Is(err, worker.ErrExpired) {
		t.Errorf("the handler returned %v", err)
	}
	srv.AwaitRunning(srv.Grant("w1", "orders", 0))
	if err := stop(); err != nil {
		t.Errorf("Run = %v", err)
	}
}

// The rules of the protocol, by hand: a lease goes back with its own token to
// its own session's account only, and a session that is over is not renewed.
func TestReleaseNeedsTheLeasesOwnToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := workertest.NewServer(t, workertest.Strict("orders", 2))
		srv.Start(srv.Config("w1"), "orders", work)
		token := srv.Grant("w1", "orders", 0)
		srv.AwaitRunning(token)

		cfg := srv.Config("raw")
		conn, err := grpc.NewClient("passthrough:///"+cfg.Servers, grpc.WithContextDialer(cfg.Dialer), grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		api := leaseholdv1.NewSessionServiceClient(conn)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		call, err := api.Attach(ctx)
		if err != nil {
			t.Fatal(err)
		}
		send := func(m *leaseholdv1.AttachRequest) {
			if err := call.Send(m); err != nil {
				t.Fatal(err)
			}
		}
		send(&leaseholdv1.AttachRequest{Request: &leaseholdv1.AttachRequest_Open{Open: &leaseholdv1.OpenSession{
			SessionId: 7, WorkerId: "raw", Keyspaces: []string{"orders"}}}})
		mine := srv.Grant("raw", "orders", 1)
		refs := []*leaseholdv1.LeaseRef{
			{KeyspaceId: 1, Partition: 0, Token: uint64(token)},     // another session's
			{KeyspaceId: 1, Partition: 1, Token: uint64(mine) - 1},  // late
			{KeyspaceId: 1, Partition: 0, Token: uint64(mine)},      // another partition
			{KeyspaceId: 2, Partition: 1, Token: uint64(mine)},      // another keyspace
			{KeyspaceId: 1, Partition: 1, Token: uint64(mine) + 50}, // made up
		}
		send(&leaseholdv1.AttachRequest{Request: &leaseholdv1.AttachRequest_Release{Release: &leaseholdv1.ReleaseLeases{
			Request: 1, Leases: refs, Cause: leaseholdv1.ReleaseCause_RELEASE_CAUSE_YIELD}}})
		for {
			m, err := call.Recv()
			if err != nil {
				t.Fatal(err)
			}
			if r := m.GetReleased(); r != nil {
				if len(r.GetRefused()) != len(refs) {
					t.Errorf("refused %v", r.GetRefused())
				}
				break
			}
		}
		for p, want := range []fence.Token{token, mine} {
			if _, now, ok := srv.Owner("orders", uint32(p)); !ok || now != want {
				t.Errorf("partition %d is held under %d, %v; want %d", p, now, ok, want)
			}
		}
		srv.AwaitExpired("raw") // it sends no keep-alive
		_, err = api.KeepAlive(ctx, &leaseholdv1.KeepAliveRequest{SessionId: 7, Seq: 1})
		if leaseholdv1.ReasonOf(err) != leaseholdv1.ReasonExpired {
			t.Errorf("keep-alive of a session that is over: %v", err)
		}
	})
}
