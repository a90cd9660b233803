// Package latency turns measured durations into the few figures that demo and
// bench report. It is pure.
package latency

import (
	"math"
	"slices"
	"time"
)

// Summary is a distribution in milliseconds, to a hundredth. All are 0 when
// nothing was measured.
type Summary struct {
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
}

// Summarise sorts a copy. Quantiles are observed values (nearest rank), so a
// p99 of fewer than a hundred samples is their maximum: it never flatters.
func Summarise(samples []time.Duration) Summary {
	if len(samples) == 0 {
		return Summary{}
	}
	sorted := slices.Clone(samples)
	slices.Sort(sorted)
	rank := func(q float64) float64 {
		i := int(math.Ceil(q*float64(len(sorted)))) - 1
		return Milliseconds(sorted[max(i, 0)])
	}
	return Summary{P50: rank(0.50), P99: rank(0.99), Max: Milliseconds(sorted[len(sorted)-1])}
}

// Milliseconds rounds to a hundredth of a millisecond.
func Milliseconds(d time.Duration) float64 {
	return math.Round(float64(d)/float64(time.Millisecond)*100) / 100
}
