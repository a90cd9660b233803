package etcdapi

import (
	"context"
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// Alarm tells, raises or lowers the alarm that no space is left. There is no
// other: a server whose data are damaged stops.
func (s *maintenance) Alarm(ctx context.Context, r *pb.AlarmRequest) (*pb.AlarmResponse, error) {
	return unary(ctx, s.API, kindMaintenance, func(ctx context.Context) (*pb.AlarmResponse, error) {
		switch r.Action {
		case pb.AlarmRequest_GET:
			return s.alarms(ctx, r.Alarm)
		case pb.AlarmRequest_ACTIVATE, pb.AlarmRequest_DEACTIVATE:
		default:
			return nil, status.Errorf(codes.InvalidArgument, "etcdserver: alarm action %d, want GET, ACTIVATE or DEACTIVATE", r.Action)
		}
		if r.Alarm != pb.AlarmType_NOSPACE {
			if r.Alarm == pb.AlarmType_NONE || r.Action == pb.AlarmRequest_DEACTIVATE {
				return &pb.AlarmResponse{Header: s.header(s.revision())}, nil // no such alarm is raised
			}
			return nil, unsupported("alarm "+r.Alarm.String(), "NOSPACE is the only one; a server whose data are damaged stops")
		}
		resp := &pb.AlarmResponse{}
		return resp, s.atLeader(ctx, methodAlarm, r, resp)
	})
}

func (s *maintenance) alarms(ctx context.Context, which pb.AlarmType) (*pb.AlarmResponse, error) {
	resp := &pb.AlarmResponse{}
	var revision int64
	err := s.read(ctx, func(st *state.State) {
		revision = st.Keys().Revision()
		if which != pb.AlarmType_NONE && which != pb.AlarmType_NOSPACE {
			return
		}
		for _, m := range st.Alarms() {
			resp.Alarms = append(resp.Alarms, &pb.AlarmMember{MemberID: m, Alarm: pb.AlarmType_NOSPACE})
		}
	})
	resp.Header = s.header(revision)
	return resp, err
}

func (a *API) leadAlarm(ctx context.Context, r *pb.AlarmRequest, resp *pb.AlarmResponse) error {
	raise := r.Action == pb.AlarmRequest_ACTIVATE
	var raised bool
	a.cfg.Store.View(func(s *state.State) { raised = slices.Contains(s.Alarms(), r.MemberID) })
	if raise || raised {
		if _, err := a.propose(ctx, &state.SetAlarm{Member: r.MemberID, Raised: raise}); err != nil {
			return err
		}
		resp.Alarms = []*pb.AlarmMember{{MemberID: r.MemberID, Alarm: pb.AlarmType_NOSPACE}}
	}
	resp.Header = a.header(a.revision())
	return nil
}
