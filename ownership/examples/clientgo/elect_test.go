package clientgo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"

	"github.com/leasehold-dev/leasehold/ownership/client"
	"github.com/leasehold-dev/leasehold/ownership/server"
)

// cluster is a server in this process.
type cluster struct {
	native *client.Client
	keys   *clientv3.Client
}

var shared cluster

func TestMain(m *testing.M) {
	klog.SetOutput(io.Discard)
	klog.LogToStderr(false)
	if err := serve(func() { m.Run() }); err != nil {
		panic(err)
	}
}

// serve runs do beside a server.
func serve(do func()) error {
	cfg := server.DevConfig()
	cfg.GRPCAddr, cfg.RaftAddr, cfg.GossipAddr, cfg.HTTPAddr = "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0"
	cfg.Logger = slog.New(slog.DiscardHandler)
	srv, err := server.New(cfg)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- srv.Run(ctx) }()
	<-srv.Ready()
	addr := srv.Addrs().GRPC
	if shared.native, err = client.New(client.Config{Servers: addr}); err != nil {
		return err
	}
	if shared.keys, err = clientv3.New(clientv3.Config{Endpoints: []string{addr}, Logger: zap.NewNop()}); err != nil {
		return err
	}
	do()
	shared.keys.Close()
	shared.native.Close()
	stop()
	if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// diary is what candidates wrote, in order.
type diary struct {
	mu    sync.Mutex
	lines []string
	added chan struct{}
}

func newDiary() *diary { return &diary{added: make(chan struct{})} }

func (d *diary) write(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines = append(d.lines, fmt.Sprintf(format, args...))
	close(d.added)
	d.added = make(chan struct{})
}

func (d *diary) all() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.lines)
}

// until waits for a line.
func (d *diary) until(t *testing.T, line string) {
	t.Helper()
	timeout := time.After(time.Minute)
	for {
		d.mu.Lock()
		there, added := slices.Contains(d.lines, line), d.added
		d.mu.Unlock()
		if there {
			return
		}
		select {
		case <-added:
		case <-timeout:
			t.Fatalf("waited in vain for %q: %v", line, d.all())
		}
	}
}

func (d *diary) want(t *testing.T, lines ...string) {
	t.Helper()
	if got := d.all(); !slices.Equal(got, lines) {
		t.Errorf("diary\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(lines, "\n  "))
	}
}

// candidate is one that writes into the diary.
type candidate struct {
	*Lock
	d      *diary
	finish chan struct{} // nil: the work ends with its context; else when it is closed, too
	tokens []uint64
}

func newCandidate(t *testing.T, d *diary, name string) *candidate {
	key := "leaders/" + t.Name()
	return &candidate{Lock: NewLock(shared.keys, Tokens(shared.native.Coordination(), shared.keys, key), key, name, nil), d: d}
}

// A busy machine may stand still for a second, and no lease ends of that.
const (
	leaseDuration = 5 * time.Second
	retryPeriod   = 250 * time.Millisecond
)

func (c *candidate) config() Config {
	return Config{
		Lock: c.Lock, LeaseDuration: leaseDuration, RenewDeadline: 4 * time.Second, RetryPeriod: retryPeriod,
		Lead: func(ctx context.Context, token uint64) {
			c.tokens = append(c.tokens, token)
			c.d.write("%s started", c.Identity())
			<-ctx.Done()
			if c.finish != nil {
				<-c.finish
			}
			c.d.write("%s returned", c.Identity())
		},
		Stopped: func() { c.d.write("%s stopped", c.Identity()) },
	}
}

// stand has a candidate stand until cancel is called; done is closed when Elect has returned.
func (c *candidate) stand(t *testing.T) (cancel context.CancelFunc, done <-chan struct{}) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := Elect(ctx, c.config()); err != nil {
			t.Errorf("%s: %v", c.Identity(), err)
		}
		c.d.write("%s left", c.Identity())
	}()
	return cancel, ended
}

// Two candidates elect one. The other one begins only when the work of the first has
// returned, although its end was asked for long before, and under a higher token.
func TestHandOverOnRelease(t *testing.T) {
	d := newDiary()
	a, b := newCandidate(t, d, "a"), newCandidate(t, d, "b")
	a.finish = make(chan struct{})
	stopA, doneA := a.stand(t)
	d.until(t, "a started")
	stopB, doneB := b.stand(t)
	stopA()
	// Past its lease: it is renewed as long as the work goes on.
	b.sees(t, int(leaseDuration/retryPeriod)+1)
	d.want(t, "a started")
	if a.Token() == 0 || b.Token() != 0 {
		t.Errorf("tokens: a %d, b %d", a.Token(), b.Token())
	}
	close(a.finish)
	<-doneA
	d.until(t, "b started")
	stopB()
	<-doneB
	got := d.all()
	if before(got, "b started", "a returned") || before(got, "b started", "a stopped") {
		t.Errorf("b began too early: %v", got)
	}
	if len(a.tokens) != 1 || len(b.tokens) != 1 || a.tokens[0] == 0 || b.tokens[0] <= a.tokens[0] {
		t.Errorf("tokens %v, then %v: want them to rise", a.tokens, b.tokens)
	}
	if b.Transitions() != 1 {
		t.Errorf("%d transitions", b.Transitions())
	}
}

// sees waits until a candidate has seen the record renewed a number of times.
func (c *candidate) sees(t *testing.T, renewals int) {
	t.Helper()
	seen := map[int64]bool{}
	for limit := time.Now().Add(time.Minute); len(seen) <= renewals; <-time.After(10 * time.Millisecond) {
		c.mu.Lock()
		seen[c.revision] = true
		c.mu.Unlock()
		if time.Now().After(limit) {
			t.Fatalf("%s saw revisions %v", c.Identity(), seen)
		}
	}
}

// before tells whether x is before y.
func before(lines []string, x, y string) bool { return slices.Index(lines, x) < slices.Index(lines, y) }

// Case O-64: 'stopped' once per 'started', never without one, and before the next.
func TestStartAndStopCallbacks(t *testing.T) {
	t.Run("never elected then cancelled", func(t *testing.T) {
		t.Parallel()
		d, quiet := newDiary(), newDiary()
		holder, c := newCandidate(t, quiet, "holder"), newCandidate(t, d, "c")
		stopHolder, holderDone := holder.stand(t)
		quiet.until(t, "holder started")
		stop, done := c.stand(t)
		c.sees(t, 3)
		stop()
		<-done
		stopHolder()
		<-holderDone
		d.want(t, "c left")
	})
	t.Run("elected then cancelled", func(t *testing.T) {
		t.Parallel()
		d := newDiary()
		stop, done := newCandidate(t, d, "c").stand(t)
		d.until(t, "c started")
		stop()
		<-done
		d.want(t, "c started", "c returned", "c stopped", "c left")
	})
	t.Run("elected then lease lost", func(t *testing.T) {
		t.Parallel()
		d := newDiary()
		c := newCandidate(t, d, "c")
		stop, done := c.stand(t)
		defer stop()
		d.until(t, "c started")
		seize(t, c)
		<-done
		d.want(t, "c started", "c returned", "c stopped", "c left")
		if r, _, err := c.Get(t.Context()); err != nil || r.HolderIdentity != "thief" {
			t.Errorf("it gave up what was not its own: %v, %v", r, err)
		}
	})
	t.Run("elected twice in a row", func(t *testing.T) {
		t.Parallel()
		d := newDiary()
		c := newCandidate(t, d, "c")
		stop, done := c.stand(t)
		d.until(t, "c started")
		seize(t, c)
		<-done
		stop()
		stop, done = c.stand(t) // the thief does not renew
		for limit := time.Now().Add(time.Minute); len(d.all()) < 5; <-time.After(10 * time.Millisecond) {
			if time.Now().After(limit) {
				t.Fatal(d.all())
			}
		}
		stop()
		<-done
		d.want(t, "c started", "c returned", "c stopped", "c left", "c started", "c returned", "c stopped", "c left")
		if len(c.tokens) != 2 || c.tokens[1] <= c.tokens[0] {
			t.Errorf("tokens %v", c.tokens)
		}
	})
}

// seize puts another holder's record in place of a candidate's.
func seize(t *testing.T, c *candidate) {
	t.Helper()
	thief := NewLock(shared.keys, c.Lock.tokens, c.key, "thief", nil)
	for {
		r, _, err := thief.Get(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		r.HolderIdentity, r.LeaseDurationSeconds = "thief", int(leaseDuration/time.Second)
		switch err := thief.Update(t.Context(), *r); {
		case err == nil:
			return
		case !apierrors.IsConflict(err): // it has just been renewed
			t.Fatal(err)
		}
	}
}

// What the interface promises to client-go.
func TestLockComparesBeforeItSets(t *testing.T) {
	ctx := t.Context()
	d := newDiary()
	a, b := newCandidate(t, d, "a"), newCandidate(t, d, "b")
	if _, _, err := a.Get(ctx); !apierrors.IsNotFound(err) {
		t.Errorf("no key: %v", err)
	}
	mine := resourcelock.LeaderElectionRecord{HolderIdentity: "a", LeaseDurationSeconds: 1}
	if err := a.Create(ctx, mine); err != nil {
		t.Fatal(err)
	}
	if err := b.Create(ctx, resourcelock.LeaderElectionRecord{HolderIdentity: "b"}); !apierrors.IsConflict(err) {
		t.Errorf("created twice: %v", err)
	}
	if _, _, err := b.Get(ctx); err != nil {
		t.Fatal(err)
	}
	if err := a.Update(ctx, mine); err != nil {
		t.Fatal(err)
	}
	if err := b.Update(ctx, resourcelock.LeaderElectionRecord{HolderIdentity: "b"}); !apierrors.IsConflict(err) {
		t.Errorf("updated on an old revision: %v", err)
	}
	if a.Token() == 0 || b.Token() != 0 {
		t.Errorf("tokens: a %d, b %d", a.Token(), b.Token())
	}
}
