package api

import (
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// callOf is the metrics' word for what a method is about.
func callOf(service, method string) string {
	switch service {
	case "SessionService":
		if method == "KeepAlive" {
			return "keep_alive"
		}
		return "attach"
	case "PartitionService":
		return "partition"
	case "CoordinationService":
		return "coordination"
	case "EventService":
		return "event"
	}
	return "admin"
}

// outcomeOf is "ok", "unavailable" for what another try may mend, else
// "refused". A caller that has gone away got what it wanted.
func outcomeOf(err error) string {
	switch status.Code(err) {
	case codes.OK, codes.Canceled:
		return "ok"
	case codes.Unavailable, codes.Unknown, codes.Internal, codes.DeadlineExceeded, codes.DataLoss:
		return "unavailable"
	default:
		return "refused"
	}
}

// WorkerFigures are how many sessions are attached to this server, and the longest
// pause that any of their workers reports: 0 on servers that do not lead.
func (a *API) WorkerFigures() (attached int, pause time.Duration) { return a.hub.figures() }
