package mvcc

import (
	"bytes"
	"testing"
)

// Bounds say of every key what the store itself makes of a range.
func TestBoundsAreWhatARangeHas(t *testing.T) {
	texts := []string{"", "\x00", "a", "a\x00", "a\x00\x00", "ab", "b", "\xff", "\xff\xff"}
	for _, key := range texts {
		for _, end := range texts {
			from, to := Bounds([]byte(key), []byte(end))
			for _, k := range texts {
				within := bytes.Compare([]byte(k), from) >= 0 && (to == nil || bytes.Compare([]byte(k), to) < 0)
				if has := (span{[]byte(key), []byte(end)}).contains([]byte(k)); has != within {
					t.Errorf("from %q to %q has %q: %v; its bounds %q and %q: %v", key, end, k, has, from, to, within)
				}
			}
		}
	}
}
