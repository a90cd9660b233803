package sqljob_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"

	_ "modernc.org/sqlite"

	"github.com/leasehold-dev/leasehold/ownership/fence"
	"github.com/leasehold-dev/leasehold/ownership/fence/sqlfence"
	"github.com/leasehold-dev/leasehold/ownership/fence/sqljob"
)

// Two owners of a partition, the second of which takes over what the first has
// left behind. The stamps come from the lease: fence.FromContext(ctx) in a
// worker's handler.
func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "jobs")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	db, err := sql.Open("sqlite", sqlfence.SQLiteDSN(filepath.Join(dir, "jobs.db")))
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	if err := sqljob.Migrate(ctx, db, sqlfence.SQLite); err != nil { // at every start
		log.Fatal(err)
	}
	queue, err := sqljob.New[int64](db, sqlfence.SQLite, sqljob.Table{}, nil)
	if err != nil {
		log.Fatal(err)
	}
	if _, err := db.Exec(`INSERT INTO leasehold_job (keyspace, partition_id, payload) VALUES ('mails', 17, 'to Ann'), ('mails', 17, 'to Bob')`); err != nil {
		log.Fatal(err)
	}

	do := func(s fence.Stamp, job sqljob.Job[int64]) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		// … what the job does, with tx …
		if err := queue.Done(ctx, tx, s, job.ID); err != nil {
			return err
		}
		return tx.Commit()
	}
	w2 := fence.Stamp{Keyspace: "mails", Partition: 17, Token: 33, Owner: "w2"}
	w4 := fence.Stamp{Keyspace: "mails", Partition: 17, Token: 34, Owner: "w4"}

	old, err := queue.Claim(ctx, w2, 100) // and w2 is paused, or dies
	if err != nil {
		log.Fatal(err)
	}
	jobs, err := queue.Claim(ctx, w4, 100)
	if err != nil {
		log.Fatal(err)
	}
	for _, job := range jobs {
		fmt.Printf("w4: %s, attempt %d: %v\n", job.Payload, job.Attempts, do(w4, job))
	}
	fmt.Println("w2:", errors.Is(do(w2, old[0]), fence.ErrStale))
	// Output:
	// w4: to Ann, attempt 2: <nil>
	// w4: to Bob, attempt 2: <nil>
	// w2: true
}
