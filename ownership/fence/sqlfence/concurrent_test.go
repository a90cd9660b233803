package sqlfence_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/fence"
	"github.com/leasehold-dev/leasehold/ownership/fence/sqlfence"
)

// O-74: with any pool the outcome is the same, no write follows one with a
// higher token, and nothing stays locked.
func TestAnyPoolSize(t *testing.T) {
	for _, pool := range []int{1, 2, 10} {
		t.Run(fmt.Sprint(pool), func(t *testing.T) {
			f, db, _ := newFence(t, pool)
			var wg sync.WaitGroup
			for owner := range 8 {
				wg.Go(func() {
					for i := range 15 {
						tok := fence.Token(1 + owner + 8*i)
						s := at(uint32(i%2), tok, fmt.Sprint("w", owner))
						if err := f.Claim(t.Context(), []fence.Stamp{s}); err != nil && !errors.Is(err, fence.ErrStale) {
							t.Error(err)
						}
						if err := write(t.Context(), db, f, s); err != nil && !errors.Is(err, fence.ErrStale) {
							t.Error(err)
						}
					}
				})
			}
			wg.Wait()
			writes, bad := regressions(t, db)
			if bad != 0 || writes == 0 {
				t.Errorf("%d of %d writes came after a higher token", bad, writes)
			}
			for p, last := range map[uint32]fence.Token{0: 8 + 8*14, 1: 8 + 8*13} {
				if m, err := f.Seen(t.Context(), fence.Key{Keyspace: "orders", Partition: p}); err != nil || m.Token != last {
					t.Errorf("partition %d: %v, %v; want token %d", p, m, err, last)
				}
			}
		})
	}
}

// O-74: a client killed inside its transaction leaves nothing locked, and what
// it had raised is not there.
func TestKilledClientLeavesNothingLocked(t *testing.T) {
	f, db, file := newFence(t, 1)
	cmd := startChild(t, "hold", file, "killed")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "holding\n" {
		t.Fatal(line, err)
	}
	short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := write(short, db, f, at(1, 4, "me")); err == nil {
		t.Fatal("wrote while the row was held: it is not locked")
	}
	cmd.Process.Kill()
	cmd.Wait()
	if err := write(t.Context(), db, f, at(1, 4, "me")); err != nil {
		t.Fatalf("after the kill: %v", err)
	}
}

// A newer claim waits for a write in flight; the next write bounces.
func TestNewerClaimWaitsForTheWriteInFlight(t *testing.T) {
	f, db, file := newFence(t, 2)
	ctx := t.Context()
	if err := f.Claim(ctx, []fence.Stamp{at(17, 33, "w2")}); err != nil {
		t.Fatal(err)
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	if err := f.Guard(ctx, tx, at(17, 33, "w2")); err != nil {
		t.Fatal(err)
	}
	// The new owner is another process: another handle on the file.
	other := sqlfence.New(open(t, file, 2), sqlfence.SQLite)
	claimed := make(chan error, 1)
	go func() { claimed <- other.Claim(ctx, []fence.Stamp{at(17, 34, "w4")}) }()
	select {
	case err := <-claimed:
		t.Fatalf("the claim did not wait: %v", err)
	case <-time.After(150 * time.Millisecond):
	}
	if _, err := tx.Exec(`INSERT INTO writes (partition_id, token, owner) VALUES (17, 33, 'w2')`); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	if err := <-claimed; err != nil {
		t.Fatal(err)
	}
	err = write(ctx, db, f, at(17, 33, "w2"))
	wantReason(t, err, fence.ReasonStale)
	var stale *fence.StaleError
	if errors.As(err, &stale); stale.Current != 34 || stale.CurrentOwner != "w4" {
		t.Errorf("the refusal names %d of %s", stale.Current, stale.CurrentOwner)
	}
}

// A rolled back write takes its token with it.
func TestRollbackUndoesTheRaise(t *testing.T) {
	f, db, _ := newFence(t, 1)
	tx, err := db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Guard(t.Context(), tx, at(1, 9, "a")); err != nil {
		t.Fatal(err)
	}
	tx.Rollback()
	if err := write(t.Context(), db, f, at(1, 8, "b")); err != nil {
		t.Error(err)
	}
}

// Two real processes take a partition from one another, each writing until it
// is refused. No write of one comes after a claim of the other.
func TestTwoProcesses(t *testing.T) {
	_, db, file := newFence(t, 1)
	type proc struct {
		in  *os.File
		out *bufio.Scanner
	}
	var procs []proc
	for _, owner := range []string{"w1", "w2"} {
		cmd := startChild(t, "race", file, owner)
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		cmd.Stdin = r
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		r.Close()
		t.Cleanup(func() {
			w.Close()
			cmd.Process.Kill() // the one that holds the last token writes on
			cmd.Wait()
		})
		procs = append(procs, proc{w, bufio.NewScanner(out)})
	}
	const rounds = 6
	fmt.Fprintln(procs[0].in, 1)
	for tok := 2; tok <= rounds; tok++ {
		taker, loser := procs[(tok+1)%2], procs[tok%2]
		fmt.Fprintln(taker.in, tok)
		if !loser.out.Scan() {
			t.Fatal("a process ended")
		}
		line := loser.out.Text()
		if !strings.Contains(line, "refused") || !strings.Contains(line, fmt.Sprintf("token %d of w%d", tok, (tok+1)%2+1)) {
			t.Fatalf("round %d: %s", tok, line)
		}
	}
	writes, bad := regressions(t, db)
	if bad != 0 || writes == 0 {
		t.Errorf("%d of %d writes came after a higher token", bad, writes)
	}
}
