package sqlfence

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/fence"
)

var update = flag.Bool("update", false, "rewrite testdata")

// The statements of all dialects, to be read by people.
func TestStatements(t *testing.T) {
	stamps := []fence.Stamp{{Keyspace: "orders", Partition: 17, Token: 34, Owner: "w4"}, {Keyspace: "orders", Partition: 18, Token: 35, Owner: "w4", Resource: `the "printer"`}}
	rows := []row{rowOf(stamps[0].Key()), rowOf(stamps[1].Key())}
	var b strings.Builder
	for _, d := range []Dialect{SQLite, PostgreSQL, MariaDB, MySQL} {
		schema, err := d.Schema()
		if err != nil {
			t.Fatal(err)
		}
		if strings.Count(schema, ";") != 1 {
			t.Errorf("%s: the schema must be one statement, drivers run one at a time", d)
		}
		fmt.Fprintf(&b, "=== %s\n%s", d, schema)
		for _, s := range []struct {
			name string
			statement
		}{
			{"lock", d.lock(rows[0], stamps[0], 10*time.Second)},
			{"raise 2", d.upsert(stamps, 10*time.Second)},
			{"look up 2", d.lookup(rows, false)},
			{"columns", statement{text: d.describe()}},
		} {
			fmt.Fprintf(&b, "--- %s\n%s\n    %s\n", s.name, s.text, strings.ReplaceAll(fmt.Sprintf("%q", s.args), "\n", " "))
		}
		fmt.Fprintln(&b)
	}
	const file = "testdata/statements.txt"
	if *update {
		if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if b.String() != string(want) {
		t.Errorf("statements differ from %s; look, then run with -update:\n%s", file, b.String())
	}
}
