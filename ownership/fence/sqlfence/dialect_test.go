package sqlfence

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite testdata")

// The statements of all dialects, to be read by people: those of PostgreSQL
// and MariaDB are not run here.
func TestStatements(t *testing.T) {
	var b strings.Builder
	for _, d := range []Dialect{SQLite, PostgreSQL, MariaDB} {
		s, err := d.statements()
		if err != nil {
			t.Fatal(err)
		}
		schema, err := d.Schema()
		if err != nil {
			t.Fatal(err)
		}
		if strings.Count(schema, ";") != 1 {
			t.Errorf("%s: the schema must be one statement, drivers run one at a time", d)
		}
		fmt.Fprintf(&b, "=== %s\n%s--- guard\n%s\n--- claim of 2\n%s\n--- look up 2\n%s\n--- type of token\n%s\n\n", d, schema, s.upsert(1), s.upsert(2), s.lookup(2), s.tokenType)
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
