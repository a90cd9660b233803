package main

import (
	"testing"
	"time"
)

func TestMedianIsOfWhatThePhaseLooksAt(t *testing.T) {
	all := []figures{{PerSecond: 30, P50: 1}, {PerSecond: 10, P50: 3}, {PerSecond: 20, P50: 9}}
	if v, _ := median(phase{value: rate}, all); v != 20 {
		t.Errorf("median rate %v", v)
	}
	if v, f := median(phase{value: p50}, all); v != p50(f) || f.P50 != 3 {
		t.Errorf("median time %v of %+v", v, f)
	}
	if v, _ := median(phase{value: rate}, nil); v != 0 {
		t.Errorf("median of nothing %v", v)
	}
}

func TestSummary(t *testing.T) {
	took := make([]time.Duration, 0, 100)
	for i := range 100 {
		took = append(took, time.Duration(100-i)*time.Millisecond)
	}
	f := summarize(took, 2*time.Second)
	if f.PerSecond != 50 || f.P50 != 51*time.Millisecond || f.P99 != 100*time.Millisecond {
		t.Errorf("%+v", f)
	}
	if f := summarize(nil, time.Second); f.PerSecond != 0 {
		t.Errorf("of nothing: %+v", f)
	}
}

func TestPortsAreDifferent(t *testing.T) {
	ports, err := freePorts(9)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[int]bool{}
	for _, p := range ports {
		if seen[p] {
			t.Errorf("port %d twice in %v", p, ports)
		}
		seen[p] = true
	}
}
