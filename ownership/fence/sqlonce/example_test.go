package sqlonce_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"

	_ "modernc.org/sqlite"

	"github.com/leasehold-dev/leasehold/ownership/fence/sqlfence"
	"github.com/leasehold-dev/leasehold/ownership/fence/sqlonce"
)

// A payment that is asked for twice is made once.
func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "once")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	db, err := sql.Open("sqlite", sqlfence.SQLiteDSN(filepath.Join(dir, "pay.db")))
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec(`CREATE TABLE payments (id INTEGER PRIMARY KEY, amount INTEGER)`); err != nil {
		log.Fatal(err)
	}
	once := sqlonce.New(db, sqlfence.SQLite)
	if err := once.Migrate(ctx); err != nil { // at every start
		log.Fatal(err)
	}

	pay := func(key string, amount int) {
		request := fmt.Appendf(nil, "pay %d", amount)
		result, replayed, err := once.Do(ctx, key, request, func(ctx context.Context, tx *sql.Tx) ([]byte, error) {
			res, err := tx.ExecContext(ctx, `INSERT INTO payments (amount) VALUES (?)`, amount)
			if err != nil {
				return nil, err
			}
			id, err := res.LastInsertId()
			return fmt.Appendf(nil, "payment %d", id), err
		})
		if errors.Is(err, sqlonce.ErrMismatch) {
			fmt.Println("refused: this key was for something else") // over HTTP: 422
			return
		}
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s, replayed: %v\n", result, replayed)
	}
	pay("order-17", 100)
	pay("order-17", 100)
	pay("order-17", 999)
	pay("order-18", 100)
	// Output:
	// payment 1, replayed: false
	// payment 1, replayed: true
	// refused: this key was for something else
	// payment 2, replayed: false
}
