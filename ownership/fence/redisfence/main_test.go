package redisfence_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"go.uber.org/goleak"

	"github.com/leasehold-dev/leasehold/ownership/fence"
	"github.com/leasehold-dev/leasehold/ownership/fence/redisfence"
	"github.com/leasehold-dev/leasehold/ownership/internal/dbtest"
)

var shared = dbtest.SharedRedis()

func TestMain(m *testing.M) {
	logging.Disable() // connections that tests cut on purpose
	code := m.Run()
	shared.Stop()
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// connect returns a client of a server, closed with the test.
func connect(t testing.TB, addr string, change ...func(*redis.Options)) *redis.Client {
	t.Helper()
	opt := &redis.Options{Addr: addr}
	for _, c := range change {
		c(opt)
	}
	c := redis.NewClient(opt)
	t.Cleanup(func() { c.Close() })
	return c
}

// newFence returns a guard of the shared server, which it empties.
func newFence(t testing.TB, opts ...redisfence.Option) (*redisfence.Fence, *redis.Client) {
	t.Helper()
	c := connect(t, shared.Get(t).Addr())
	if err := c.FlushAll(context.Background()).Err(); err != nil {
		t.Fatal(err)
	}
	return redisfence.New(c, opts...), c
}

func at(partition uint32, token fence.Token, owner string) fence.Stamp {
	return fence.Stamp{Keyspace: "orders", Partition: partition, Token: token, Owner: owner}
}

var orders17 = fence.Key{Keyspace: "orders", Partition: 17}

func journal(k fence.Key) redisfence.DataKey { return redisfence.Under(k, "journal") }

// push is a write: a line at the end of the partition's journal.
func push(ctx context.Context, f *redisfence.Fence, s fence.Stamp, line string) error {
	_, err := f.Do(ctx, s, redisfence.Command("RPUSH", journal(s.Key()), line))
	return err
}

func lines(t testing.TB, c redis.UniversalClient, k fence.Key) []string {
	t.Helper()
	l, err := c.LRange(context.Background(), string(journal(k)), 0, -1).Result()
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func wantReason(t testing.TB, err error, reason string) {
	t.Helper()
	var stale *fence.StaleError
	if !errors.As(err, &stale) || stale.Reason != reason {
		t.Fatalf("got %v, want a refusal with reason %s", err, reason)
	}
}

func wantSeen(t testing.TB, f *redisfence.Fence, k fence.Key, want fence.Mark) {
	t.Helper()
	if m, err := f.Seen(context.Background(), k); err != nil || m != want {
		t.Fatalf("mark of %s is %+v, %v; want %+v", k, m, err, want)
	}
}

// eventually waits for a condition of another process.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("waited a minute for: %s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// wire is a network between a client and a server that can lose what the
// server sends: swallow it, or cut the connection instead of passing it on.
type wire struct {
	addr string
	mode atomic.Int32
	lost atomic.Int64 // bytes from the server that were not passed on

	mu    sync.Mutex // guards conns
	conns []net.Conn
}

const (
	passing int32 = iota
	swallowing
	cuttingOnce // one connection, with its next answer
)

func newWire(t testing.TB, server string) *wire {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{addr: l.Addr().String()}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", server)
			if err != nil {
				near.Close()
				continue
			}
			w.mu.Lock()
			w.conns = append(w.conns, near, far)
			w.mu.Unlock()
			wg.Go(func() { io.Copy(far, near); far.Close() })
			wg.Go(func() { w.back(near, far); near.Close(); far.Close() })
		}
	})
	t.Cleanup(func() {
		l.Close()
		w.hangUp()
		wg.Wait()
	})
	return w
}

func (w *wire) back(near, far net.Conn) {
	b := make([]byte, 64<<10)
	for {
		n, err := far.Read(b)
		if err != nil {
			return
		}
		switch w.mode.Load() {
		case passing:
			if _, err := near.Write(b[:n]); err != nil {
				return
			}
		case swallowing:
			w.lost.Add(int64(n))
		case cuttingOnce:
			w.lost.Add(int64(n))
			w.mode.Store(passing)
			return
		}
	}
}

// hangUp ends all connections.
func (w *wire) hangUp() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.conns {
		c.Close()
	}
}
