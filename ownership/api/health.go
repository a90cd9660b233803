package api

import (
	"context"

	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// GetHealth answers with what this server measures of itself, without the
// leader and without the disk.
func (a *cluster) GetHealth(context.Context, *pb.GetHealthRequest) (*pb.ServerHealth, error) {
	return a.health(), nil
}

func (a *API) health() *pb.ServerHealth {
	m := &pb.ServerHealth{}
	if a.cfg.Health != nil {
		m = a.cfg.Health()
	}
	m.ServerId, m.Version = a.cfg.ServerID, a.cfg.Version
	m.MaxFeatureLevel = uint32(state.MaxFeature)
	m.ElectionTimeoutMs = a.cfg.ElectionTimeout.Milliseconds()
	m.ClusterId = a.cfg.Store.ClusterID() // that of the data directory, before the log has been read too
	now := a.cfg.Clock.Now()
	m.UptimeMs = (now - a.started).Milliseconds()
	// Last, and side by side: who asks takes them for the time of the answer.
	m.BootClockNs, m.WallClock = now.Nanoseconds(), timestamppb.New(a.cfg.Wall())
	return m
}
