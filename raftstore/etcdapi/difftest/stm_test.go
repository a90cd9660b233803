package difftest

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/client/v3/concurrency"
)

// stmScenario moves money between accounts from several clients at once, at each
// isolation level: none is made or lost where the level promises so.
func stmScenario(t *testing.T, addrs []string) {
	levels := map[string]concurrency.Isolation{
		"serializable snapshot": concurrency.SerializableSnapshot, "serializable": concurrency.Serializable,
		"repeatable reads": concurrency.RepeatableReads, "read committed": concurrency.ReadCommitted,
	}
	for name, level := range levels {
		t.Run(name, func(t *testing.T) { transfers(t, addrs, name, level) })
	}
}

const (
	accounts = 5
	balance  = 100
)

func transfers(t *testing.T, addrs []string, prefix string, level concurrency.Isolation) {
	c, ctx := client(t, addrs...), within(t, 60*time.Second)
	account := func(i int) string { return fmt.Sprintf("%s/%d", prefix, i) }
	for i := range accounts {
		_, err := c.Put(ctx, account(i), strconv.Itoa(balance))
		must(t, err)
	}
	for _, addr := range addrs { // the weak levels read what a server has by itself
		_, err := client(t, addr).Get(ctx, account(0))
		must(t, err)
	}
	var wg sync.WaitGroup
	for worker := range 4 {
		c := client(t, addrs[worker%len(addrs)])
		rng := rand.New(rand.NewPCG(uint64(worker), 9))
		wg.Go(func() {
			for range 25 {
				from, to := rng.IntN(accounts), rng.IntN(accounts)
				_, err := concurrency.NewSTM(c, func(s concurrency.STM) error {
					return transfer(s, account(from), account(to))
				}, concurrency.WithIsolation(level), concurrency.WithAbortContext(ctx))
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	sum := 0
	for i := range accounts {
		r, err := c.Get(ctx, account(i))
		must(t, err)
		n, err := strconv.Atoi(string(r.Kvs[0].Value))
		must(t, err)
		sum += n
	}
	// Read committed does not hold back a write that rests on an old read.
	if sum != accounts*balance && level != concurrency.ReadCommitted {
		t.Errorf("the accounts hold %d, want %d", sum, accounts*balance)
	}
}

func transfer(s concurrency.STM, from, to string) error {
	if from == to {
		return nil
	}
	x, err := strconv.Atoi(s.Get(from))
	if err != nil {
		return err
	}
	y, err := strconv.Atoi(s.Get(to))
	if err != nil {
		return err
	}
	s.Put(from, strconv.Itoa(x-x/2))
	s.Put(to, strconv.Itoa(y+x/2))
	return nil
}
