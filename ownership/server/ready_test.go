package server

import (
	"strings"
	"testing"
)

// O-53: a follower that comes back is not ready before it has applied what its
// leader had then, and one that was cut off has to ask again.
func TestCatchUp(t *testing.T) {
	asked := 0
	leaderAt := func(index uint64, why string) func() (uint64, string) {
		return func() (uint64, string) {
			asked++
			return index, why
		}
	}
	c := catchUp{}.step(false, false, 40, leaderAt(90, ""))
	if c.done || asked != 0 {
		t.Errorf("without a leader: %+v, asked %d times", c, asked)
	}
	c = c.step(false, true, 40, leaderAt(0, "it does not answer"))
	if c.done || c.text != "it does not answer" {
		t.Errorf("leader does not answer: %+v", c)
	}
	c = c.step(false, true, 40, leaderAt(90, ""))
	if c.done || c.text != "entry 40 of 90" {
		t.Errorf("behind: %+v", c)
	}
	c = c.step(false, true, 89, leaderAt(1000, ""))
	if c.done || asked != 2 {
		t.Errorf("nearly there: %+v, asked %d times", c, asked)
	}
	c = c.step(false, true, 90, leaderAt(1000, ""))
	if !c.done {
		t.Errorf("caught up: %+v", c)
	}
	if c = c.step(false, true, 95, leaderAt(2000, "")); !c.done {
		t.Errorf("a follower that keeps up stays ready: %+v", c)
	}
	c = c.step(false, false, 95, leaderAt(2000, "")).step(false, true, 95, leaderAt(2000, ""))
	if c.done || asked != 3 {
		t.Errorf("cut off and back: %+v, asked %d times", c, asked)
	}
	if c = c.step(true, true, 96, leaderAt(0, "")); !c.done {
		t.Errorf("leading: %+v", c)
	}
}

// O-33: whoever waits alone is told what it waits for.
func TestSeedsInTheReason(t *testing.T) {
	for _, c := range []struct {
		seeds []string
		want  string
	}{
		{nil, "names no other server"},
		{[]string{"127.0.0.1:7402"}, "only this server itself"},
		{[]string{"localhost:7402"}, "only this server itself"},
		{[]string{"127.0.0.1:7402", "10.0.0.2:7402", "s3.test:7402"}, "trying --join 10.0.0.2:7402, s3.test:7402, where nobody answers yet"},
	} {
		if got := withSeeds("1 of 3 servers seen", c.seeds, "127.0.0.1:7402"); !strings.HasPrefix(got, "1 of 3 servers seen; ") || !strings.Contains(got, c.want) {
			t.Errorf("%v: %q, want %q", c.seeds, got, c.want)
		}
	}
}
