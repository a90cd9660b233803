package difftest

import (
	"fmt"
	"time"

	"github.com/anishathalye/porcupine"
)

// register is the state of one key in the model.
type register struct {
	value    string
	revision int64 // that it was written at, 0 when it is absent
	last     int64 // of the last change, deletion included
}

// keyModel is one key that is put, compared, deleted and read: a linearizable
// register whose revisions rise.
var keyModel = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		keys := map[string][]porcupine.Operation{}
		for _, op := range history {
			key := op.Input.(request).key
			keys[key] = append(keys[key], op)
		}
		parts := make([][]porcupine.Operation, 0, len(keys))
		for _, ops := range keys {
			parts = append(parts, ops)
		}
		return parts
	},
	Init: func() any { return register{} },
	Step: func(state, input, output any) (bool, any) {
		return step(state.(register), input.(request), output.(response))
	},
	DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v -> %+v", input, output) },
}

func step(s register, req request, resp response) (bool, any) {
	if resp.done {
		if resp.revision <= s.last || req.kind == "cas" && s.revision != req.expect {
			return false, s
		}
		if req.kind == "delete" {
			return true, register{last: resp.revision}
		}
		return true, register{value: req.value, revision: resp.revision, last: resp.revision}
	}
	// A get, or a cas that did not hold: what is there was told.
	same := resp.revision == s.revision && resp.value == s.value
	return same && !(req.kind == "cas" && s.revision == req.expect), s
}

// linearizable checks a history.
func linearizable(ops []porcupine.Operation) error {
	switch porcupine.CheckOperationsTimeout(keyModel, ops, time.Minute) {
	case porcupine.Ok:
		return nil
	case porcupine.Illegal:
		return fmt.Errorf("the history of %d operations is not linearizable", len(ops))
	default:
		return fmt.Errorf("whether %d operations are linearizable was not found out in a minute", len(ops))
	}
}
