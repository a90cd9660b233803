package redisfence_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-dev/leasehold/ownership/fence"
	"github.com/leasehold-dev/leasehold/ownership/fence/redisfence"
	"github.com/leasehold-dev/leasehold/ownership/worker"
)

// A worker whose data lives in Redis. The library claims before the handler
// starts; each write carries the token of the lease.
func Example() {
	ctx := context.Background()
	client := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	guard := redisfence.New(client)
	if err := guard.Check(ctx); err != nil {
		log.Fatal(err)
	}
	w, err := worker.Join(ctx, worker.Config{Servers: "localhost:7400", ID: "w1"})
	if err != nil {
		log.Fatal(err)
	}
	err = w.Run(ctx, "orders", func(ctx context.Context, l *worker.Lease) error {
		stamp := l.Stamp()
		orders := redisfence.Under(stamp.Key(), "paid")
		for order := range incoming(ctx, l) {
			// Nothing is written if the token is stale. HSET under the order's
			// id may be repeated when an answer was lost; INCRBY might count twice.
			write := redisfence.Command("HSET", orders, order.id, order.amount)
			_, err := guard.Do(ctx, stamp, write)
			if errors.Is(err, redisfence.ErrNotRun) || errors.Is(err, redisfence.ErrOutcomeUnknown) {
				_, err = guard.Do(ctx, stamp, write) // once more
			}
			if err != nil {
				return err // fence.ErrStale: somebody newer owns the partition
			}
		}
		return nil
	}, worker.Claim(guard))
	if err != nil {
		log.Fatal(err)
	}
}

type order struct {
	id     string
	amount int
}

func incoming(context.Context, *worker.Lease) <-chan order { return nil }

// Names that come and go leave marks. Those below the lowest token that any
// worker holds can go, once every worker that has lost a lease has stopped.
func ExampleFence_Forget() {
	ctx := context.Background()
	guard := redisfence.New(redis.NewClient(&redis.Options{Addr: "localhost:6379"}))
	const lowest = 77_309_411_328 // among `leasehold partitions ls` of all keyspaces
	var jobs []fence.Key
	err := guard.Each(ctx, func(k fence.Key, m fence.Mark) error {
		if k.Resource != "" && m.Token < lowest {
			jobs = append(jobs, k)
		}
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	n, err := guard.Forget(ctx, lowest, jobs...)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("removed", n)
}

func ExampleUnder() {
	key := fence.Key{Keyspace: "orders", Partition: 17}
	fmt.Println(redisfence.Under(key, "journal"))
	fmt.Println(redisfence.New(nil).MarkKey(key))
	// Output:
	// {orders/17}:journal
	// leasehold:fence:{orders/17}
}
