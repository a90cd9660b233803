package demo

// Overlaps are pairs of contexts of one partition, in two processes, that were
// live at the same time.
type Overlaps struct {
	Checked int // contexts looked at
	Live    int // pairs in which both processes were running, or inside their deadline
	Paused  int // pairs that met only in the part of a pause beyond the deadline
	// Examples are the first few live pairs, for the reader.
	Examples [][2]*Tenure
}

// CountOverlaps sweeps over contexts that are ordered by partition and start:
// each is compared with those of its partition that have not ended before.
func CountOverlaps(all []*Tenure) Overlaps {
	o := Overlaps{Checked: len(all)}
	var active []*Tenure
	for _, t := range all {
		kept := active[:0]
		for _, a := range active {
			if a.Partition != t.Partition || a.End <= t.Start {
				continue
			}
			kept = append(kept, a)
			if a.Process == t.Process || !(span{a.Start, a.End}).meets(span{t.Start, t.End}) {
				continue
			}
			if bothLive(a, t) {
				o.Live++
				if len(o.Examples) < 3 {
					o.Examples = append(o.Examples, [2]*Tenure{a, t})
				}
			} else {
				o.Paused++
			}
		}
		active = append(kept, t)
	}
	return o
}

func bothLive(a, b *Tenure) bool {
	for _, s := range a.live() {
		for _, u := range b.live() {
			if s.meets(u) {
				return true
			}
		}
	}
	return false
}
