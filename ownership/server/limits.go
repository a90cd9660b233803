package server

import (
	"context"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"

	"github.com/leasehold-dev/leasehold/metrics"
	"github.com/leasehold-dev/leasehold/ownership/listen"
)

// reservedFiles are open files that are not for connections: the log, snapshots,
// gossip, and connections to other servers. A log that cannot open a file ends the
// server.
const reservedFiles = 512

// limits are those of one listener of three: all connections together leave enough
// open files for the rest of the server. most is what the process may have; 0: not
// known.
func (c *Config) limits(most int64) (l listen.Limits, reduced bool) {
	l = c.Limits
	if most <= 0 {
		return l, false
	}
	share := int(min(max(most-reservedFiles, most/2)/3, mostConnections))
	if l.Connections == 0 || l.Connections > share {
		reduced = l.Connections > share
		l.Connections = share
	}
	return l, reduced
}

// tooLarge counts the messages that gRPC itself refuses: they are so large that no
// handler sees them.
type tooLarge struct{ m *metrics.Server }

func (tooLarge) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context   { return ctx }
func (tooLarge) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (tooLarge) HandleConn(context.Context, stats.ConnStats)                       {}

// HandleRPC looks at how a call ended.
func (t tooLarge) HandleRPC(_ context.Context, s stats.RPCStats) {
	end, ok := s.(*stats.End)
	if !ok || end.Error == nil {
		return
	}
	// gRPC has no other mark for it. A handler's own words begin otherwise.
	st := status.Convert(end.Error)
	if st.Code() == codes.ResourceExhausted && strings.HasPrefix(st.Message(), "grpc: received message") {
		t.m.LimitHit("request_size")
	}
}
