package latency

import (
	"testing"
	"time"
)

func TestSummarise(t *testing.T) {
	var hundred []time.Duration
	for i := 100; i > 0; i-- {
		hundred = append(hundred, time.Duration(i)*time.Millisecond)
	}
	for _, c := range []struct {
		name string
		in   []time.Duration
		want Summary
	}{
		{"nothing", nil, Summary{}},
		{"one", []time.Duration{1234567}, Summary{1.23, 1.23, 1.23}},
		{"two", []time.Duration{3 * time.Millisecond, time.Millisecond}, Summary{1, 3, 3}},
		{"hundred", hundred, Summary{50, 99, 100}},
	} {
		if got := Summarise(c.in); got != c.want {
			t.Errorf("%s: Summarise = %+v, want %+v", c.name, got, c.want)
		}
	}
}

func TestSummariseLeavesItsInputAlone(t *testing.T) {
	in := []time.Duration{3, 1, 2}
	Summarise(in)
	if in[0] != 3 || in[1] != 1 || in[2] != 2 {
		t.Fatalf("the samples were reordered: %v", in)
	}
}
