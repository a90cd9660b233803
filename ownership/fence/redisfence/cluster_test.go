package redisfence_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sort"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-dev/leasehold/ownership/fence"
	"github.com/leasehold-dev/leasehold/ownership/fence/redisfence"
	"github.com/leasehold-dev/leasehold/ownership/internal/dbtest"
)

// startCluster starts three masters that share the slots.
func startCluster(t testing.TB) *redis.ClusterClient {
	t.Helper()
	const masters, slots = 3, 16384
	var (
		addrs []string
		bus   [masters]string
		ones  []*redis.Client
	)
	for i := range masters {
		// The default port of the bus is 10,000 higher, which may be none. This one
		// is below those that outgoing connections get.
		for bus[i] == "" {
			port := strconv.Itoa(12_000 + rand.IntN(20_000))
			if l, err := net.Listen("tcp", "127.0.0.1:"+port); err == nil {
				bus[i] = port
				l.Close()
			}
		}
		server := dbtest.StartRedis(t, "--cluster-enabled", "yes", "--cluster-port", bus[i], "--cluster-node-timeout", "10000")
		addrs = append(addrs, server.Addr())
		ones = append(ones, connect(t, server.Addr()))
	}
	for i, c := range ones {
		if err := c.ClusterAddSlotsRange(t.Context(), i*slots/masters, (i+1)*slots/masters-1).Err(); err != nil {
			t.Fatal(err)
		}
		host, port, _ := strings.Cut(addrs[i], ":")
		if err := ones[0].Do(t.Context(), "CLUSTER", "MEET", host, port, bus[i]).Err(); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "cluster_state:ok everywhere", func() bool {
		for _, c := range ones {
			info, err := c.ClusterInfo(t.Context()).Result()
			if err != nil || !strings.Contains(info, "cluster_state:ok") || !strings.Contains(info, "cluster_known_nodes:"+strconv.Itoa(masters)) {
				return false
			}
		}
		return true
	})
	c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs})
	t.Cleanup(func() { c.Close() })
	return c
}

// In a real cluster: marks and data of one partition share a slot whatever the
// names are, claims spread over the masters, and a key without the tag gets an
// error that says what to do.
func TestCluster(t *testing.T) {
	c := startCluster(t)
	ctx := t.Context()
	f := redisfence.New(c)
	if err := f.Check(ctx); err != nil {
		t.Fatal(err)
	}
	var stamps []fence.Stamp
	for i := range 300 {
		stamps = append(stamps, at(uint32(i), 33, "a"))
	}
	for _, name := range []string{"{", "}", "{}", "a{b}c", "}{", "{{x}}", "%7B", "ünï {→}", `"'`, "a:b", " ", "\t", "resource:x", "orders/17"} {
		s := at(1, 33, "a")
		s.Resource = name
		stamps = append(stamps, s)
		stamps = append(stamps, fence.Stamp{Keyspace: name, Partition: 3, Token: 33, Owner: "a"})
	}
	if err := f.Claim(ctx, stamps); err != nil {
		t.Fatal(err)
	}
	for _, s := range stamps {
		if err := push(ctx, f, s, "x"); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
		old := s
		old.Token, old.Owner = 32, "z"
		wantReason(t, push(ctx, f, old, "late"), fence.ReasonStale)
		if got := lines(t, c, s.Key()); fmt.Sprint(got) != "[x]" {
			t.Fatalf("%s: %q", s, got)
		}
	}
	var err error
	seen := map[fence.Key]bool{}
	if err = f.Each(ctx, func(k fence.Key, m fence.Mark) error {
		seen[k] = true
		if m != (fence.Mark{Token: 33, Owner: "a"}) {
			t.Errorf("%s: %+v", k, m)
		}
		return nil
	}); err != nil || len(seen) != len(stamps) {
		t.Errorf("Each shows %d marks, %v; want %d", len(seen), err, len(stamps))
	}
	// The claims went to all three, and the script with them.
	var sizes []int
	for _, addr := range c.Options().Addrs {
		sizes = append(sizes, int(connect(t, addr).DBSize(ctx).Val()))
	}
	if sort.Ints(sizes); sizes[0] < 100 {
		t.Errorf("keys per master: %v", sizes)
	}

	s := stamps[0]
	for what, cmds := range map[string][]redisfence.Cmd{
		"no tag":      {redisfence.Command("SET", redisfence.DataKey("cart:17"), "x")},
		"another tag": {redisfence.Command("SET", redisfence.Under(stamps[1].Key(), "n"), "x")},
		"the second":  {redisfence.Command("MSET", redisfence.Under(s.Key(), "n"), 1, redisfence.DataKey("cart:17"), 2)},
	} {
		_, err := f.Do(ctx, at(0, 34, "b"), cmds...)
		if !errors.Is(err, redisfence.ErrCrossSlot) || !errors.Is(err, redisfence.ErrNotRun) || !strings.Contains(err.Error(), "hash tag") {
			t.Errorf("%s: got %v, want ErrCrossSlot", what, err)
		}
	}
	wantSeen(t, f, s.Key(), fence.Mark{Token: 33, Owner: "a"})

	for _, addr := range c.Options().Addrs {
		connect(t, addr).ScriptFlush(ctx)
	}
	for i := range stamps {
		stamps[i].Token = 35
	}
	if err := f.Claim(ctx, stamps); err != nil {
		t.Errorf("after SCRIPT FLUSH: %v", err)
	}
	keys := make([]fence.Key, len(stamps))
	for i, s := range stamps {
		keys[i] = s.Key()
	}
	if n, err := f.Forget(ctx, 36, keys...); err != nil || n != len(stamps) {
		t.Errorf("forgot %d, %v; want %d", n, err, len(stamps))
	}
}
