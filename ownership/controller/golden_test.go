package controller

import (
	"flag"
	"os"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the text files that tests compare with")

// golden compares with a text file, or rewrites it.
func golden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(want) != got {
		t.Errorf("%s differs; got:\n%s", path, got)
	}
}
