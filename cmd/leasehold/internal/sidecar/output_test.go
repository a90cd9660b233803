package sidecar

import (
	"fmt"
	"strings"
	"sync"
	"testing"
)

// chunks counts writes, as a terminal or a log collector sees them.
type chunks struct{ all []string }

func (c *chunks) Write(p []byte) (int, error) {
	c.all = append(c.all, string(p))
	return len(p), nil
}

// Many commands, whole lines: no two halves meet.
func TestLinesAreNeverMixed(t *testing.T) {
	out := &chunks{}
	l := &lines{w: out}
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			l.copy(fmt.Sprintf("[k/%d] ", i), strings.NewReader(strings.Repeat(fmt.Sprintf("command %d says this\n", i), 200)+"no end"))
		})
	}
	wg.Wait()
	if len(out.all) != 8*201 {
		t.Fatalf("%d writes, want one for each of %d lines", len(out.all), 8*201)
	}
	for _, line := range out.all {
		i := line[3:4]
		if line != fmt.Sprintf("[k/%s] command %s says this\n", i, i) && line != fmt.Sprintf("[k/%s] no end\n", i) {
			t.Fatalf("line %q", line)
		}
	}
}

func TestLongLinesAreSplit(t *testing.T) {
	out := &chunks{}
	(&lines{w: out}).copy("> ", strings.NewReader(strings.Repeat("x", 2*maxLine+1)+"\n\n"))
	if len(out.all) != 4 || len(out.all[0]) != maxLine+3 || out.all[2] != "> x\n" || out.all[3] != "> \n" {
		t.Errorf("%d pieces", len(out.all))
	}
}
