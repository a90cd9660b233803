package demo

import (
	"time"

	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
)

// copyEvent puts the cluster's drains and grants into the driver's evidence:
// the grants give the moves by cause, the drains are where a handoff begins.
func copyEvent(record *Recorder, e *leaseholdv1.Event) {
	rec := Record{Process: DriverProcess, Worker: e.GetWorker(), Partition: e.GetPartition(), Token: e.GetToken(), Cause: e.GetCause()}
	switch e.GetKind() {
	case "grant":
		rec.Kind = KindMove
	case "drain":
		// An event has the leader's wall clock at its proposal, which is before
		// the drain was sent, so a duration from it never flatters. All servers
		// share the driver's wall clock here.
		rec.Kind, rec.At = KindDrain, Now()-time.Since(e.GetTime().AsTime())
	default:
		return
	}
	record.Write(rec)
}
