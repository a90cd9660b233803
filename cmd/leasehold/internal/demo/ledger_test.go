package demo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/fence"
)

func stamp(partition uint32, token uint64, owner string) fence.Stamp {
	return fence.Stamp{Keyspace: Keyspace, Partition: partition, Token: fence.Token(token), Owner: owner}
}

func openLedger(t *testing.T, file string, guarded bool) *Ledger {
	t.Helper()
	l, err := OpenLedger(t.Context(), file, guarded)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

func write(t *testing.T, l *Ledger, src *Source, partition uint32, seq int64, token uint64, owner string) error {
	t.Helper()
	return l.Append(t.Context(), Order{Partition: partition, Seq: seq, Token: token, Worker: owner, Item: src.Item(partition, seq)},
		stamp(partition, token, owner))
}

// Two processes have the file open; the older one wakes up after the newer
// one's claim.
func TestAZombiesWriteBounces(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a path with ? and #", "ledger.db")
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	src := &Source{Seed: 1, Partitions: 2, Pace: time.Second}
	zombie, owner := openLedger(t, file, true), openLedger(t, file, true)
	if err := write(t, zombie, src, 1, 1, 33, "w1"); err != nil {
		t.Fatal(err)
	}
	if err := owner.guard.Claim(t.Context(), []fence.Stamp{stamp(1, 34, "w2")}); err != nil {
		t.Fatal(err)
	}
	if err := write(t, zombie, src, 1, 2, 33, "w1"); !errors.Is(err, fence.ErrStale) {
		t.Fatalf("a write with token 33 after the claim of 34: %v", err)
	}
	if err := write(t, zombie, src, 0, 1, 33, "w1"); err != nil {
		t.Fatalf("the other partition is still its own: %v", err)
	}
	next, err := owner.Next(t.Context(), 1)
	if err != nil || next != 2 {
		t.Fatalf("the new owner goes on with %d, %v; want 2", next, err)
	}
	if err := write(t, owner, src, 1, 2, 34, "w2"); err != nil {
		t.Fatal(err)
	}
	a, err := owner.Audit(t.Context(), src, 2)
	if err != nil {
		t.Fatal(err)
	}
	if a.Written != 3 || a.Duplicated != 0 || a.TokenRegressions != 0 || a.Missing != 1 {
		t.Fatalf("audit %+v", a)
	}
}

func TestWithoutTheGuardTheZombieDoesDamage(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ledger.db")
	src := &Source{Seed: 1, Partitions: 1, Pace: time.Second}
	zombie, owner := openLedger(t, file, false), openLedger(t, file, false)
	for _, err := range []error{
		write(t, zombie, src, 0, 1, 33, "w1"),
		write(t, owner, src, 0, 2, 34, "w2"),
		write(t, zombie, src, 0, 2, 33, "w1"),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	a, err := owner.Audit(t.Context(), src, 2)
	if err != nil {
		t.Fatal(err)
	}
	if a.Duplicated != 1 || a.TokenRegressions != 1 || len(a.Examples) != 2 {
		t.Fatalf("audit %+v", a)
	}
}

// While the driver has the write lock nobody is inside a transaction, and
// whoever waits goes on when it lets go.
func TestTheLockKeepsWritersOut(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ledger.db")
	src := &Source{Seed: 1, Partitions: 1, Pace: time.Second}
	driver, worker := openLedger(t, file, true), openLedger(t, file, true)
	unlock, err := driver.Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	wrote := make(chan error, 1)
	go func() {
		wrote <- worker.Append(context.Background(), Order{Seq: 1, Token: 1, Worker: "w1", Item: src.Item(0, 1)}, stamp(0, 1, "w1"))
	}()
	select {
	case err := <-wrote:
		t.Fatalf("a write went through the lock: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	if err := unlock(); err != nil {
		t.Fatal(err)
	}
	if err := <-wrote; err != nil {
		t.Fatal(err)
	}
	waiting, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := driver.WaitFor(waiting, 1, 1); err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := driver.WaitFor(short, 1, 2); err == nil || !strings.Contains(err.Error(), "order 2") {
		t.Fatalf("order 2 is not there: %v", err)
	}
}

func TestTheAuditSeesEveryKindOfDamage(t *testing.T) {
	src := &Source{Seed: 1, Partitions: 2, Pace: time.Second}
	row := func(partition uint32, seq int64, token uint64) Order {
		return Order{Partition: partition, Seq: seq, Token: token, Worker: fmt.Sprintf("w%d", token), Item: src.Item(partition, seq)}
	}
	other := row(0, 1, 1)
	other.Item = "order of somebody else"
	for _, c := range []struct {
		name string
		rows []Order
		want Audit
	}{
		{"sound", []Order{row(0, 1, 1), row(1, 1, 2), row(0, 2, 1), row(1, 2, 3)}, Audit{Written: 4}},
		{"missing at the end", []Order{row(0, 1, 1), row(0, 2, 1), row(1, 1, 2)}, Audit{Written: 3, Missing: 1}},
		{"a whole partition missing", []Order{row(0, 1, 1), row(0, 2, 1)}, Audit{Written: 2, Missing: 2}},
		{"twice", []Order{row(0, 1, 1), row(0, 1, 1), row(0, 2, 1), row(1, 1, 2), row(1, 2, 2)}, Audit{Written: 5, Duplicated: 1}},
		{"out of sequence", []Order{row(0, 2, 1), row(0, 1, 1), row(1, 1, 2), row(1, 2, 2)}, Audit{Written: 4, OutOfSequence: 2}},
		{"older token", []Order{row(0, 1, 2), row(0, 2, 1), row(1, 1, 2), row(1, 2, 2)}, Audit{Written: 4, TokenRegressions: 1}},
		{"unknown partition, number, text", []Order{row(0, 1, 1), row(0, 2, 1), row(1, 1, 2), row(1, 2, 2), row(2, 1, 1), row(0, 3, 1), row(0, 0, 1), other},
			Audit{Written: 8, Foreign: 4}},
	} {
		a := newAuditor(src, 2)
		for _, o := range c.rows {
			a.row(o)
		}
		got := a.finish()
		if damaged := got.Duplicated+got.OutOfSequence+got.TokenRegressions+got.Foreign > 0; damaged != (len(got.Examples) > 0) {
			t.Errorf("%s: examples %q", c.name, got.Examples)
		}
		got.Examples = nil
		if fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

func TestTheGateHoldsOneHandlerAndLetsItGo(t *testing.T) {
	reached := make(chan uint32, 1)
	g := newGate(func(p uint32, _ uint64) { reached <- p })
	g.pass(3, 1) // not armed: no wait, no report
	g.arm(3)
	g.arm(3)
	g.pass(4, 1)
	through := make(chan struct{})
	go func() { g.pass(3, 1); close(through) }()
	if p := <-reached; p != 3 {
		t.Fatalf("partition %d is at the gate", p)
	}
	select {
	case <-through:
		t.Fatal("the handler went through a closed gate")
	default:
	}
	g.open(3)
	<-through
	g.pass(3, 1)
	g.open(3)
}
