package difftest

import (
	"context"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// atEach runs a scenario against etcd, which shows that the scenario is right,
// and against three servers of Leasehold.
func atEach(t *testing.T, scenario func(t *testing.T, addrs []string)) {
	t.Run("etcd", func(t *testing.T) {
		e, err := StartEtcd(t.TempDir(), 1)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(e.Close)
		scenario(t, e.Addrs)
	})
	t.Run("leasehold", func(t *testing.T) {
		l := leasehold(t, 3, calm)
		waitServing(t, l.Addrs)
		scenario(t, l.Addrs)
	})
}

// TestConcurrencyLibrary runs the scenarios of etcd's library for sessions,
// locks, elections and transactions.
func TestConcurrencyLibrary(t *testing.T) {
	atEach(t, func(t *testing.T, addrs []string) {
		for name, scenario := range map[string]func(*testing.T, []string){
			"Mutex": mutexScenario, "MutexExcludes": excludeScenario, "SessionLoss": sessionLossScenario, "SessionLivesOn": sessionLivesOnScenario,
			"Election": electionScenario, "ElectionResumes": resumeScenario, "STM": stmScenario,
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel() // each has keys of its own
				scenario(t, addrs)
			})
		}
	})
}

// client is etcd's own client of the cluster.
func client(t *testing.T, addrs ...string) *clientv3.Client {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: addrs, DialTimeout: 10 * time.Second, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// waitServing waits until each server answers a linearizable read.
func waitServing(t *testing.T, addrs []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for _, addr := range addrs {
		c := client(t, addr)
		var err error
		if perr := poll(ctx, 20*time.Millisecond, func() bool {
			ctx, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			_, err = c.Get(ctx, "ready")
			return err == nil
		}); perr != nil {
			t.Fatalf("%s does not serve: %v", addr, err)
		}
	}
}

// within is a context of the test that ends after d.
func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// must fails the test on an error.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
