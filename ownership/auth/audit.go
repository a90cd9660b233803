package auth

import (
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"github.com/leasehold-dev/leasehold/raftstore/access"
)

// OutcomeOK is the Outcome of what was done.
const OutcomeOK = "ok"

// Entry of the audit log is one call: who did what, and what came of it.
type Entry struct {
	Time     time.Time
	Identity access.Identity // nobody, if the caller could not prove who they are
	From     string          // address of the caller
	// Method is /package.Service/Method, or GET /path for what is no call.
	Method string
	// Target is what the call was about: "keyspace=orders partition=3". Empty for
	// callers who have shown nothing: their messages are not read.
	Target string
	// Outcome is OutcomeOK, or the reason of the error, or its code.
	Outcome string
}

// Recorder keeps the audit log. Record is called once for each call that changes
// something and for those that were refused, on the server that the caller spoke
// to, when the call ends. It must not wait.
type Recorder interface{ Record(Entry) }

func (a *Auth) record(c caller, method, target string, err error) {
	if a.cfg.Audit == nil {
		return
	}
	a.cfg.Audit.Record(Entry{
		Time: a.cfg.Now(), Identity: c.id, From: c.from, Method: method, Target: target, Outcome: outcomeOf(err),
	})
}

func outcomeOf(err error) string {
	if err == nil {
		return OutcomeOK
	}
	if reason := pb.ReasonOf(err); reason != "" {
		return reason
	}
	return status.Code(err).String()
}

// refused reports whether a call was turned away for who made it.
func refused(err error) bool {
	if err == nil {
		return false
	}
	switch pb.ReasonOf(err) {
	case pb.ReasonDenied, pb.ReasonUnauthenticated:
		return true
	}
	c := status.Code(err)
	return c == codes.PermissionDenied || c == codes.Unauthenticated
}
