package sqlfence_test

import (
	"bufio"
	"context"
	"database/sql"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	_ "modernc.org/sqlite"

	"github.com/leasehold-dev/leasehold/ownership/fence"
	"github.com/leasehold-dev/leasehold/ownership/fence/sqlfence"
)

// open makes another handle on the file, as another process would.
func open(t testing.TB, file string, pool int) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", testDSN(file))
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxOpenConns(pool)
	t.Cleanup(func() { db.Close() })
	return db
}

// newFence is a guard on a new file with a table of writes beside it.
func newFence(t testing.TB, pool int, opts ...sqlfence.Option) (*sqlfence.Fence, *sql.DB, string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "ledger #1?.db") // a name that needs escaping
	db := open(t, file, pool)
	f := sqlfence.New(db, sqlfence.SQLite, opts...)
	if err := f.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec(`CREATE TABLE writes (id INTEGER PRIMARY KEY, partition_id INTEGER, token INTEGER, owner TEXT)`); err != nil {
		t.Fatal(err)
	}
	return f, db, file
}

func at(partition uint32, token fence.Token, owner string) fence.Stamp {
	return fence.Stamp{Keyspace: "orders", Partition: partition, Token: token, Owner: owner}
}

// write is a guarded write as a user would do it.
func write(ctx context.Context, db *sql.DB, f *sqlfence.Fence, s fence.Stamp) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := f.Guard(ctx, tx, s); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, `INSERT INTO writes (partition_id, token, owner) VALUES (?, ?, ?)`, s.Partition, int64(s.Token), s.Owner); err != nil {
		return err
	}
	return tx.Commit()
}

// regressions counts the writes that came after one with a higher token.
func regressions(t testing.TB, db *sql.DB) (writes, bad int) {
	t.Helper()
	rows, err := db.Query(`SELECT partition_id, token FROM writes ORDER BY id`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	highest := map[int64]int64{}
	for rows.Next() {
		var p, tok int64
		if err := rows.Scan(&p, &tok); err != nil {
			t.Fatal(err)
		}
		writes++
		if tok < highest[p] {
			bad++
		}
		highest[p] = max(highest[p], tok)
	}
	return writes, bad
}

// childEnv makes a copy of this test binary play another process.
const childEnv = "SQLFENCE_TEST_CHILD"

func TestMain(m *testing.M) {
	if role := os.Getenv(childEnv); role != "" {
		if err := child(role, os.Args[1], os.Args[2]); err != nil {
			fmt.Println("error", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func child(role, file, owner string) error {
	ctx := context.Background()
	db, err := sql.Open("sqlite", testDSN(file))
	if err != nil {
		return err
	}
	f := sqlfence.New(db, sqlfence.SQLite)
	switch role {
	case "hold":
		// Holds the row, says so, and waits to be killed.
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		if err := f.Guard(ctx, tx, at(1, 5, owner)); err != nil {
			return err
		}
		fmt.Println("holding")
		select {}
	case "race":
		// Takes over again and again with the token it is given, and writes
		// until it is refused.
		in := bufio.NewScanner(os.Stdin)
		for in.Scan() {
			var token fence.Token
			if _, err := fmt.Sscan(in.Text(), &token); err != nil {
				return err
			}
			stamp := at(1, token, owner)
			if err := f.Claim(ctx, []fence.Stamp{stamp}); err != nil {
				fmt.Println("refused", err)
				continue
			}
			n := 0
			var err error
			// Without a breath between writes SQLite's lock is never free when
			// the other process happens to look.
			breath := time.NewTicker(20 * time.Millisecond)
			for err == nil {
				if err = write(ctx, db, f, stamp); err == nil {
					n++
					<-breath.C
				}
			}
			breath.Stop()
			fmt.Println("wrote", n, err)
		}
		return in.Err()
	}
	return fmt.Errorf("no such role %q", role)
}

func startChild(t *testing.T, role, file, owner string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0], file, owner)
	cmd.Env = append(os.Environ(), childEnv+"="+role)
	cmd.Stderr = os.Stderr
	return cmd
}

// testDSN is what users get, but for the waiting on the disk: power loss is
// not what these tests are about.
func testDSN(file string) string {
	return strings.Replace(sqlfence.SQLiteDSN(file), "synchronous%28FULL%29", "synchronous%28OFF%29", 1)
}
