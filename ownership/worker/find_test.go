package worker

import (
	"slices"
	"testing"
	"time"
)

// Servers that do not answer may cost a worker little while others do: it would
// lose its leases waiting for them.
func TestSilentServersAreNotWaitedForWhileOthersAnswer(t *testing.T) {
	const wait = 2 * time.Second
	silent := []string{"a", "b", "c"}
	tried := map[string]bool{}
	for round := range 3 {
		got := targets([]string{"x", "y"}, silent, "", round, wait)
		if len(got) != 3 || got[0] != (target{"x", wait}) || got[1] != (target{"y", wait}) || got[2].wait != silentWait {
			t.Fatalf("round %d tries %v, want x, y, and one of %v for %v", round, got, silent, silentWait)
		}
		tried[got[2].addr] = true
	}
	if len(tried) != 3 {
		t.Errorf("of the silent servers only %v were tried in three rounds", tried)
	}
	if got, want := targets(nil, silent, "a", 0, wait), []target{{"b", wait}, {"c", wait}, {"a", wait}}; !slices.Equal(got, want) {
		t.Errorf("with no answer %v is tried, want %v", got, want)
	}
	if got := targets([]string{"x"}, nil, "x", 0, wait); !slices.Equal(got, []target{{"x", wait}}) {
		t.Errorf("the only server is tried as %v", got)
	}
}
