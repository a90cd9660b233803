package difftest

import (
	"slices"
	"testing"
)

// doctoredHistories changes a history that is right, in one place each: every
// check must notice.
func doctoredHistories(t *testing.T, h *history, events []change) {
	t.Helper()
	for name, change := range map[string]func([]record) bool{
		"a read of what was overwritten": staleRead, "a cas that held by mistake": falseCas, "a write that was lost": lostWrite,
	} {
		changed := &history{records: slices.Clone(h.records)}
		if !change(changed.records) {
			t.Errorf("%s: the history has no place for it", name)
		} else if linearizable(changed.operations()) == nil {
			t.Errorf("%s was not noticed", name)
		}
	}
	changed := &history{records: slices.Clone(h.records)}
	slices.SortStableFunc(changed.records, func(a, b record) int { return int(a.ret/1000 - b.ret/1000) })
	if changed.records[len(changed.records)-1].resp.header = 2; changed.checkOrder() == nil {
		t.Error("an answer of an old revision was not noticed")
	}
	if checkComplete(events[:len(events)/2], h.records) == nil {
		t.Error("missing events were not noticed")
	}
	whole := &observed{name: "whole", from: events[0].revision, messages: group(events)}
	for name, m := range map[string][][]change{
		"a message that was lost":         without(whole.messages, len(whole.messages)/2),
		"a message that came twice":       slices.Insert(slices.Clone(whole.messages), len(whole.messages)/2, whole.messages[len(whole.messages)/2]),
		"two messages that changed place": exchanged(whole.messages),
		"a revision in two messages":      split(whole.messages),
	} {
		o := &observed{name: name, from: whole.from, messages: m}
		if o.check() == nil && checkSame(whole, o) == nil {
			t.Errorf("%s was not noticed", name)
		}
	}
	if err := whole.check(); err != nil {
		t.Error(err)
	}
}

// staleRead lets a late read see the value of an early one of its key.
func staleRead(records []record) bool {
	early := map[string]response{}
	changed := false
	for i := range records {
		r := &records[i]
		if r.req.kind != "get" || r.resp.revision == 0 {
			continue
		}
		if was, ok := early[r.req.key]; !ok {
			early[r.req.key] = r.resp
		} else if i > len(records)*3/4 && was.revision < r.resp.revision {
			r.resp, changed = was, true
			return changed
		}
	}
	return changed
}

// falseCas lets a cas that did not hold have held.
func falseCas(records []record) bool {
	for i := len(records) / 2; i < len(records); i++ {
		if r := &records[i]; r.req.kind == "cas" && !r.resp.done && !r.unknown && !r.neverApplied {
			r.resp = response{done: true, value: r.req.value, revision: r.resp.header, header: r.resp.header}
			return true
		}
	}
	return false
}

// lostWrite leaves out a write whose value somebody has read.
func lostWrite(records []record) bool {
	read := map[string]bool{}
	for _, r := range records {
		if r.req.kind == "get" {
			read[r.resp.value] = true
		}
	}
	for i := range records {
		if r := &records[i]; r.resp.done && r.req.kind != "delete" && read[r.req.value] {
			r.neverApplied = true
			return true
		}
	}
	return false
}

// group joins the events of each revision to a message.
func group(events []change) [][]change {
	var messages [][]change
	for i, e := range events {
		if i == 0 || e.revision != events[i-1].revision {
			messages = append(messages, nil)
		}
		messages[len(messages)-1] = append(messages[len(messages)-1], e)
	}
	return messages
}

func without(m [][]change, i int) [][]change { return slices.Delete(slices.Clone(m), i, i+1) }

func exchanged(m [][]change) [][]change {
	m = slices.Clone(m)
	i := len(m) / 2
	m[i], m[i+1] = m[i+1], m[i]
	return m
}

func split(m [][]change) [][]change {
	m = slices.Clone(m)
	for i, events := range m {
		if len(events) > 1 {
			return slices.Replace(m, i, i+1, events[:1], events[1:])
		}
	}
	return m
}
