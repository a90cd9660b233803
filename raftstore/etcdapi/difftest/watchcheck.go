package difftest

import (
	"fmt"
)

// observed is what one watch has received, message by message.
type observed struct {
	name string
	// from is the first revision that it had to tell.
	from     int64
	messages [][]change
}

// all events in the order in which they came.
func (o *observed) all() []change {
	var events []change
	for _, m := range o.messages {
		events = append(events, m...)
	}
	return events
}

// check checks what holds for each watch by itself: the events are in order,
// none comes twice, those of a revision come together, and the pair before is
// what the event before has left.
func (o *observed) check() error {
	last := o.from - 1
	before := map[string]change{}
	for _, m := range o.messages {
		if len(m) > 0 && m[0].revision <= last {
			return fmt.Errorf("watch %s: revision %d after a message that ended with %d", o.name, m[0].revision, last)
		}
		inside := map[string]bool{}
		for i, e := range m {
			if i > 0 && e.revision < m[i-1].revision {
				return fmt.Errorf("watch %s: revision %d after %d in one message", o.name, e.revision, m[i-1].revision)
			}
			id := fmt.Sprint(e.revision, e.key)
			if inside[id] {
				return fmt.Errorf("watch %s: key %s twice at revision %d", o.name, e.key, e.revision)
			}
			inside[id] = true
			if was, ok := before[e.key]; ok && e.hasPrev && (was.delete || was.value != e.prev) {
				return fmt.Errorf("watch %s: at revision %d, %s was %q, but the event says %q", o.name, e.revision, e.key, was.value, e.prev)
			}
			before[e.key] = e
			last = e.revision
		}
	}
	return nil
}

// checkSame checks that one has told what the other has, from the later of
// their beginnings on.
func checkSame(a, b *observed) error {
	from := max(a.from, b.from)
	x, y := since(a.all(), from), since(b.all(), from)
	for i := range max(len(x), len(y)) {
		if i >= len(x) || i >= len(y) {
			return fmt.Errorf("from revision %d on, watch %s has %d events, %s has %d", from, a.name, len(x), b.name, len(y))
		}
		if x[i].key != y[i].key || x[i].value != y[i].value || x[i].delete != y[i].delete || x[i].revision != y[i].revision {
			return fmt.Errorf("event %d: watch %s has %+v, %s has %+v", i, a.name, x[i], b.name, y[i])
		}
	}
	return nil
}

func since(events []change, revision int64) []change {
	for i, e := range events {
		if e.revision >= revision {
			return events[i:]
		}
	}
	return nil
}

// checkComplete checks the events against the writes that were acknowledged:
// each has its own, at its revision.
func checkComplete(events []change, records []record) error {
	at := map[string]change{}
	for _, e := range events {
		at[fmt.Sprint(e.revision, " ", e.key)] = e
	}
	for _, r := range records {
		if !r.resp.done || r.unknown || r.neverApplied {
			continue
		}
		if e, ok := at[fmt.Sprint(r.resp.revision, " ", r.req.key)]; r.req.kind != "delete" && (!ok || e.delete || e.value != r.req.value) {
			return fmt.Errorf("the write %+v was acknowledged at revision %d, and its event is %+v (%v)", r.req, r.resp.revision, e, ok)
		}
		if _, ok := at[fmt.Sprint(r.resp.revision, " ", r.req.marker)]; !ok {
			return fmt.Errorf("the write %+v was acknowledged at revision %d, where no event of its marker is", r.req, r.resp.revision)
		}
	}
	return nil
}
