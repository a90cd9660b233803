package live

import (
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"strconv"
	"testing"
	"time"
)

// pollEvery is how often a condition is looked at.
const pollEvery = 50 * time.Millisecond

// Await looks until a condition holds, and fails the test when it does not
// within a time. look says what is missing, or nil.
func Await(tb testing.TB, within time.Duration, what string, look func() error) {
	tb.Helper()
	if err := Within(within, look); err != nil {
		tb.Fatalf("after %v still not: %s: %v", within, what, err)
	}
}

// Within looks until a condition holds, and returns what is missing when it
// does not within a time.
func Within(within time.Duration, look func() error) error {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	limit := time.NewTimer(within)
	defer limit.Stop()
	for {
		err := look()
		if err == nil {
			return nil
		}
		select {
		case <-limit.C:
			return err
		case <-tick.C:
		}
	}
}

// FreePorts finds loopback addresses that are free for TCP and UDP, below the
// ports that the kernel gives to outgoing connections.
func FreePorts(tb testing.TB, n int) []string {
	tb.Helper()
	var held []io.Closer
	defer func() {
		for _, c := range held {
			_ = c.Close()
		}
	}()
	var addrs []string
	for tries := 0; len(addrs) < n; tries++ {
		if tries > 100*n {
			tb.Fatal(errors.New("find free ports: too many between 12000 and 32000 are taken"))
		}
		addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(12_000+rand.IntN(20_000)))
		tcp, err := net.Listen("tcp4", addr)
		if err != nil {
			continue
		}
		held = append(held, tcp)
		udp, err := net.ListenPacket("udp4", addr)
		if err != nil {
			continue
		}
		held = append(held, udp)
		addrs = append(addrs, addr)
	}
	return addrs
}
