package worker_test

import (
	"context"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/leasehold-dev/leasehold/ownership/worker"
)

// A key that a handler ties to its worker's session lives as long as the session:
// through etcd's API nobody ends the session, nobody renews it, and the key goes
// when the worker has died.
func TestKeyDiesWithItsWorker(t *testing.T) {
	d := startDev(t)
	const ttl = 4 * time.Second
	d.keyspace("orders", 1, ttl)
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{d.addr}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var line cable
	sessions, lost := make(chan clientv3.LeaseID, 1), make(chan struct{})
	stop, done := d.run(worker.Config{ID: "w1", Gossip: worker.GossipOff, Dialer: line.dial}, "orders", func(hctx context.Context, l *worker.Lease) error {
		select {
		case sessions <- clientv3.LeaseID(l.Session()):
			defer close(lost)
		default: // granted again
		}
		<-hctx.Done()
		return context.Cause(hctx)
	})
	defer func() { stop(); <-done }()
	var id clientv3.LeaseID
	select {
	case id = <-sessions:
	case <-ctx.Done():
		t.Fatal("nothing is granted")
	}
	put, err := c.Put(ctx, "owner/orders/0", "w1", clientv3.WithLease(id))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Revoke(ctx, id); err == nil {
		t.Error("etcd's API ended a worker's session")
	}
	if got, err := c.Get(ctx, "owner/orders/0"); err != nil || len(got.Kvs) != 1 || got.Kvs[0].Lease != int64(id) {
		t.Fatalf("after the refusal: %v, %v", got, err)
	}

	line.pull()
	pulled := time.Now()
	// Whoever goes on asking keeps nothing alive.
	asking, asked := context.WithCancel(ctx)
	answers := make(chan int, 1)
	go func() {
		n := 0
		defer func() { answers <- n }()
		for tick := time.NewTicker(50 * time.Millisecond); asking.Err() == nil; <-tick.C {
			if r, err := c.KeepAliveOnce(asking, id); err == nil && r.TTL >= 0 && r.TTL <= int64(ttl/time.Second) {
				n++
			}
		}
	}()
	events := c.Watch(ctx, "owner/orders/0", clientv3.WithRev(put.Header.Revision+1))
	for r := range events {
		if err := r.Err(); err != nil {
			t.Fatal(err)
		}
		if len(r.Events) == 1 && r.Events[0].Type == clientv3.EventTypeDelete {
			break
		}
	}
	asked()
	if n := <-answers; n == 0 {
		t.Error("no keep-alive was answered while the session lived")
	}
	if ctx.Err() != nil {
		t.Fatal("the key outlived its worker")
	}
	if took := time.Since(pulled); took > ttl+10*time.Second {
		t.Errorf("the key died %v after its worker, whose session is for %v", took, ttl)
	}
	select {
	case <-lost: // the worker gave up before
	default:
		t.Error("the key died while the handler went on")
	}
	if left, err := c.TimeToLive(ctx, id); err != nil || left.TTL != -1 {
		t.Errorf("after its end the session is %+v, %v", left, err)
	}
}
