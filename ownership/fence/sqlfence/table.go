package sqlfence

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/fence"
)

// Migrate makes the table if it is missing, and refuses one that is not as it
// would make it (*TableError) or that has rows no guard has written
// (*RowError). It changes nothing in a table that exists. It may be called at
// every start, by several processes at once, and needs no right to create
// tables where the table exists.
func (f *Fence) Migrate(ctx context.Context) error {
	// SQLite tells connections that make a WAL file of a new one at the same moment
	// that it is locked, at once and without the wait that they have asked for.
	for began := time.Now(); ; {
		err := f.migrate(ctx)
		if f.dialect != SQLite || !errors.Is(err, ErrBlocked) || time.Since(began) > newFileLocked {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// newFileLocked is how long Migrate may be told that a new SQLite file is locked.
const newFileLocked = 5 * time.Second

func (f *Fence) migrate(ctx context.Context) error {
	schema, err := f.dialect.Schema()
	if err != nil {
		return err
	}
	f.columns.Store(false)
	f.rows.Store(false)
	// Some databases fail one of two who create the table at the same moment;
	// the loser finds it at its next look.
	var created error
	for range 5 {
		err := f.verify(ctx, f.db)
		if !errors.Is(err, ErrNoTable) {
			return err
		}
		_, created = f.db.Exec(ctx, schema, nil)
		if ctx.Err() != nil {
			break
		}
	}
	if created != nil {
		return fmt.Errorf("create table leasehold_fence: %w", explain(created))
	}
	return f.verify(ctx, f.db)
}

// verify looks at the table once, columns and rows.
func (f *Fence) verify(ctx context.Context, q Queryer) error {
	if err := f.verifyColumns(ctx, q); err != nil || f.rows.Load() {
		return err
	}
	bad := `token IS NULL OR token NOT BETWEEN 1 AND 9007199254740991 OR owner IS NULL`
	if f.dialect == SQLite {
		bad += ` OR typeof(token) <> 'integer'`
	}
	var found error
	err := q.Query(ctx, `SELECT keyspace, partition_id, token FROM leasehold_fence WHERE `+bad+` LIMIT 1`, nil, func(scan func(...any) error) error {
		var r row
		var token any
		if err := scan(&r.Keyspace, &r.Partition, &token); err != nil {
			return err
		}
		if b, ok := token.([]byte); ok {
			token = string(b)
		}
		e := &RowError{Row: r.String(), Found: fmt.Sprintf("token is %v", token)}
		found = e
		switch token.(type) {
		case string, float64:
			found = fmt.Errorf("%w: %w", ErrTokenType, e)
		}
		return nil
	})
	if err = errors.Join(err, found); err != nil {
		return fmt.Errorf("look at the rows: %w", explain(err))
	}
	f.rows.Store(true)
	return nil
}

// column is one of the table: its type, and whether it is part of the key.
type column struct {
	kind string
	key  bool
}

// verifyColumns looks at the shape of the table once. Guard calls it before its
// first statement, in SQLite after it.
func (f *Fence) verifyColumns(ctx context.Context, q Queryer) error {
	if f.columns.Load() {
		return nil
	}
	found := map[string]column{}
	err := q.Query(ctx, f.dialect.describe(), nil, func(scan func(...any) error) error {
		var name, kind string
		var key sql.NullInt64
		if err := scan(&name, &kind, &key); err != nil {
			return err
		}
		found[name] = column{strings.ToLower(kind), key.Int64 > 0}
		return nil
	})
	if err != nil {
		return fmt.Errorf("look at table leasehold_fence: %w", explain(err))
	}
	// MySQL's dialects show the columns and the engine one after the other while
	// somebody makes the table.
	_, engine := found["engine"]
	if len(found) == 0 || (f.dialect == MariaDB || f.dialect == MySQL) && (!engine || len(found) == 1) {
		return ErrNoTable
	}
	if err := f.dialect.judge(found); err != nil {
		return err
	}
	f.columns.Store(true)
	return nil
}

// describe returns name, type and place in the primary key of each column; the
// storage engine comes as a column of its own.
func (d Dialect) describe() string {
	switch d {
	case SQLite:
		return `SELECT name, type, pk FROM pragma_table_info('leasehold_fence')`
	case PostgreSQL:
		return `SELECT a.attname::text,
       format_type(a.atttypid, a.atttypmod) || CASE WHEN c.collname IS NULL OR c.collname IN ('C', 'POSIX', 'default', 'ucs_basic') THEN '' ELSE ' collate ' || c.collname END,
       (SELECT count(*) FROM pg_index i WHERE i.indrelid = a.attrelid AND i.indisprimary AND a.attnum = ANY (i.indkey))
FROM pg_attribute a LEFT JOIN pg_collation c ON c.oid = a.attcollation
WHERE a.attrelid = to_regclass('leasehold_fence') AND a.attnum > 0 AND NOT a.attisdropped`
	}
	return `SELECT column_name, column_type, column_key = 'PRI' FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = 'leasehold_fence'
UNION ALL SELECT 'engine', engine, 0 FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = 'leasehold_fence'`
}

// judge compares the table with the schema. The token comes first: it is the
// mistake that does harm in silence.
func (d Dialect) judge(found map[string]column) error {
	prefix := strings.HasPrefix
	integer := func(kind string) bool { return prefix(kind, "bigint") && !strings.Contains(kind, "unsigned") }
	name, when := func(kind string) bool { return kind == "text" }, func(string) bool { return true }
	want := map[string]string{"token": "bigint", "partition_id": "bigint", "keyspace": "text", "owner": "text", "claimed_at": "a time"}
	switch d {
	case SQLite:
		// What contains INT stores numbers as integers, also where they came as
		// text: https://www.sqlite.org/datatype3.html §3.1.
		integer = func(kind string) bool { return strings.Contains(kind, "int") }
	case PostgreSQL:
		when = func(kind string) bool { return prefix(kind, "timestamp") }
	default:
		name = func(kind string) bool { return kind == fmt.Sprintf("varbinary(%d)", maxName) }
		when = func(kind string) bool { return prefix(kind, "datetime") }
		want["keyspace"], want["owner"] = fmt.Sprintf("varbinary(%d)", maxName), fmt.Sprintf("varbinary(%d)", maxName)
		if e := found["engine"]; e.kind != "innodb" {
			return &TableError{Column: "engine", Found: e.kind, Want: "InnoDB, for its transactions"}
		}
		delete(found, "engine")
	}
	for _, c := range []struct {
		name string
		ok   func(string) bool
		key  bool
	}{
		{"token", integer, false}, {"partition_id", integer, true}, {"keyspace", name, true}, {"owner", name, false}, {"claimed_at", when, false},
	} {
		have, ok := found[c.name]
		switch {
		case !ok:
			return &TableError{Column: c.name, Want: want[c.name]}
		case !c.ok(have.kind):
			return &TableError{Column: c.name, Found: fmt.Sprintf("%q", have.kind), Want: want[c.name]}
		case have.key != c.key:
			return &TableError{Column: "primary key", Found: "another one", Want: "(keyspace, partition_id)"}
		}
		delete(found, c.name)
	}
	for name, c := range found {
		return &TableError{Column: name, Found: c.kind}
	}
	return nil
}

// Prune removes the marks of named resources (Stamp.Resource) whose token is
// below the given one, a thousand at a time, and returns how many they were. The
// marks of partitions are bounded by their number and stay.
//
// What it removes cannot be refused any more, so below must not be higher than
// the token of any lease whose process may still write: a resource's mark is
// needed as long as somebody with a lower token is only paused. The token of a
// lease that was granted before the longest pause that you believe in, a day
// ago, say, is a good choice. Marks at or above it are never touched.
func (f *Fence) Prune(ctx context.Context, below fence.Token) (int, error) {
	if below > fence.MaxToken {
		return 0, fmt.Errorf("prune: %w: token %d is above %d", fence.ErrInvalid, below, fence.MaxToken)
	}
	const where = `partition_id = -1 AND token < `
	total := 0
	for {
		var keys []row
		err := f.db.Query(ctx, fmt.Sprintf(`SELECT keyspace, partition_id FROM leasehold_fence WHERE %s %d ORDER BY keyspace LIMIT 1000`, where, below), nil, func(scan func(...any) error) error {
			var r row
			keys = append(keys, r)
			return scan(&keys[len(keys)-1].Keyspace, &keys[len(keys)-1].Partition)
		})
		if err != nil || len(keys) == 0 {
			return total, explain(err)
		}
		// The condition again: a claim may have raised one meanwhile.
		del := f.dialect.among(fmt.Sprintf(`DELETE FROM leasehold_fence WHERE %s %d AND (keyspace, partition_id) IN `, where, below), keys)
		if err := f.db.InTx(ctx, func(tx Queryer) error {
			_, err := tx.Exec(ctx, del.text, del.args)
			return err
		}); err != nil {
			return total, fmt.Errorf("prune: %w", explain(err))
		}
		total += len(keys)
	}
}

// Forget removes the marks of all partitions of a keyspace. Call it when the
// keyspace has been deleted and none of its workers runs any more, paused ones
// included; not before, for nothing refuses them then. A keyspace that is made
// again under that name needs none of the old marks: its tokens are higher.
func (f *Fence) Forget(ctx context.Context, keyspace string) error {
	mark := "?"
	if f.dialect == PostgreSQL {
		mark = "$1"
	}
	err := f.db.InTx(ctx, func(tx Queryer) error {
		_, err := tx.Exec(ctx, `DELETE FROM leasehold_fence WHERE partition_id >= 0 AND keyspace = `+mark, []any{f.dialect.text(keyspace)})
		return err
	})
	if err != nil {
		return fmt.Errorf("forget keyspace %q: %w", keyspace, explain(err))
	}
	return nil
}
