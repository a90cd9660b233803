package sqlfence_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/leasehold-dev/leasehold/ownership/fence"
	"github.com/leasehold-dev/leasehold/ownership/fence/sqlfence"
)

// A write under an old lease bounces as soon as the new owner has claimed.
func ExampleFence_Do() {
	dir, err := os.MkdirTemp("", "sqlfence-example-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	db, err := sql.Open("sqlite", sqlfence.SQLiteDSN(filepath.Join(dir, "orders.db")))
	if err != nil {
		panic(err)
	}
	defer db.Close()
	ctx := context.Background()
	guard := sqlfence.New(db, sqlfence.SQLite)
	if err := guard.Migrate(ctx); err != nil {
		panic(err)
	}
	if _, err := db.Exec(`CREATE TABLE orders (id INTEGER PRIMARY KEY, item TEXT)`); err != nil {
		panic(err)
	}
	order := func(s fence.Stamp, item string) error {
		return guard.Do(ctx, s, func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, `INSERT INTO orders (item) VALUES (?)`, item)
			return err
		})
	}
	w2 := fence.Stamp{Keyspace: "orders", Partition: 17, Token: 33, Owner: "w2"}
	w4 := fence.Stamp{Keyspace: "orders", Partition: 17, Token: 34, Owner: "w4"}
	fmt.Println("w2:", order(w2, "tea"))
	fmt.Println("w4 claims:", guard.Claim(ctx, []fence.Stamp{w4})) // the worker library does this
	err = order(w2, "coffee")
	fmt.Println("w2:", err)
	fmt.Println("stale:", errors.Is(err, fence.ErrStale))
	// Output:
	// w2: <nil>
	// w4 claims: <nil>
	// w2: write to orders/17 token 33 of w2 refused: the resource has seen token 34 of w4
	// stale: true
}
