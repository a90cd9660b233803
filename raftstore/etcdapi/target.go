package etcdapi

import (
	"fmt"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"
)

// Target says in few words what a request is about, for the log of who did what: it
// never has a value or a password.
func (a *API) Target(_ string, req proto.Message) string {
	switch r := req.(type) {
	case *pb.CompactionRequest:
		return fmt.Sprintf("revision=%d", r.GetRevision())
	case *pb.MoveLeaderRequest:
		return fmt.Sprintf("member=%x", r.GetTargetID())
	case *pb.AlarmRequest:
		return fmt.Sprintf("alarm=%v action=%v member=%x", r.GetAlarm(), r.GetAction(), r.GetMemberID())
	case interface {
		GetKey() []byte
		GetRangeEnd() []byte
	}:
		if len(r.GetRangeEnd()) > 0 {
			return fmt.Sprintf("keys=%q to=%q", shorten(r.GetKey()), shorten(r.GetRangeEnd()))
		}
		return fmt.Sprintf("key=%q", shorten(r.GetKey()))
	case interface{ GetKey() []byte }:
		return fmt.Sprintf("key=%q", shorten(r.GetKey()))
	case interface{ GetID() int64 }:
		return fmt.Sprintf("lease=%x", uint64(r.GetID()))
	case interface{ GetID() uint64 }:
		return fmt.Sprintf("member=%x", r.GetID())
	case interface{ GetName() []byte }:
		return fmt.Sprintf("name=%q", shorten(r.GetName()))
	case interface{ GetName() string }:
		return fmt.Sprintf("name=%q", shorten([]byte(r.GetName())))
	}
	return ""
}
