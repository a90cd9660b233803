package etcdapi

import (
	"context"
	"slices"
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leasehold-dev/leasehold/raftstore/access"
	"github.com/leasehold-dev/leasehold/raftstore/etcdapi/relaypb"
)

// authorizing is an API that is asked, and does nothing.
func authorizing() *API { return &API{permissions: permissionTable()} }

// registered are all methods that a gRPC server of the API has.
func registered(t *testing.T) (methods []string) {
	t.Helper()
	g := grpc.NewServer()
	(&API{}).Register(g)
	for service, info := range g.GetServiceInfo() {
		for _, m := range info.Methods {
			methods = append(methods, "/"+service+"/"+m.Name)
		}
	}
	if len(methods) < 50 {
		t.Fatalf("%d methods are registered", len(methods))
	}
	return methods
}

func TestEveryMethodHasARowAndNoOther(t *testing.T) {
	a, methods := authorizing(), registered(t)
	for _, m := range methods {
		if !a.Knows(m) {
			t.Errorf("%s is registered and not in the table", m)
		}
	}
	for m := range a.permissions {
		if !slices.Contains(methods, m) {
			t.Errorf("%s is in the table and not registered", m)
		}
	}
	for _, m := range []string{"", "/", "/etcdserverpb.KV/Ranges", "/etcdserverpb.kv/Range", "etcdserverpb.KV/Range", "/leasehold.v1.ClusterService/GetStatus"} {
		if err := a.Authorize(context.Background(), access.Anybody(), m, nil); a.Knows(m) || status.Code(err) != codes.PermissionDenied {
			t.Errorf("%q: known %v, to anybody: %v", m, a.Knows(m), err)
		}
	}
}

// mayCall lists for each caller what the rows alone allow. What a row does not say,
// and what is said of keys, is in other tests.
func TestWhoMayCallWhat(t *testing.T) {
	reads := []string{
		"KV/Range", "KV/RangeStream", "KV/Txn", "Watch/Watch", "Lease/LeaseTimeToLive", "Lease/LeaseLeases", "Cluster/MemberList",
		"Maintenance/Status", "Maintenance/Alarm", "Auth/AuthStatus", "Auth/Authenticate", "Election/Leader", "Election/Observe",
	}
	sums := []string{"Maintenance/Hash", "Maintenance/HashKV"}
	writes := []string{
		"KV/Put", "KV/DeleteRange", "Lease/LeaseGrant", "Lease/LeaseRevoke", "Lease/LeaseKeepAlive",
		"Lock/Lock", "Lock/Unlock", "Election/Campaign", "Election/Proclaim", "Election/Resign",
	}
	ofStore := []string{"KV/Compact", "Maintenance/Defragment"}
	may := map[string][]string{
		"nobody":   {"Auth/Authenticate"},
		"server":   {"Auth/Authenticate", "RelayService/Exchange"},
		"reader":   slices.Concat(reads, sums),
		"reader-a": reads,
		"a":        slices.Concat(reads, writes),
		"worker":   slices.Concat(reads, sums, writes),
		"boss-a":   slices.Concat(reads, writes),
		"keyboss":  slices.Concat(reads, sums, writes, ofStore),
	}
	a := authorizing()
	for _, method := range registered(t) {
		short := method[strings.LastIndexByte(method, '.')+1:]
		for name, methods := range may {
			want := codes.OK
			if !slices.Contains(methods, short) {
				if want = codes.PermissionDenied; name == "nobody" {
					want = codes.InvalidArgument // etcd's "user name is empty"
				}
			}
			if err := a.Authorize(context.Background(), callers[name], method, nil); status.Code(err) != want {
				t.Errorf("%s to %s: %v, want %v", method, name, err, want)
			}
		}
		// An operator of everything may do what is no server's.
		err := a.Authorize(context.Background(), callers["boss"], method, nil)
		if inside := method == relaypb.RelayService_Exchange_FullMethodName; (err != nil) != inside {
			t.Errorf("%s to boss: %v", method, err)
		}
		if err := a.Authorize(context.Background(), access.Anybody(), method, nil); err != nil {
			t.Errorf("%s to anybody: %v", method, err)
		}
	}
}

// Texts are etcd's, and the details say what was missing.
func TestDenialsAreEtcdsOwn(t *testing.T) {
	a := authorizing()
	err := a.Authorize(context.Background(), callers["a"], pb.KV_Put_FullMethodName, &pb.PutRequest{Key: []byte("/b/\xff")})
	if got, want := status.Convert(err), status.Convert(rpctypes.ErrGRPCPermissionDenied); got.Message() != want.Message() || got.Code() != want.Code() {
		t.Errorf("%v, want %v", got, want)
	}
	if rpctypes.Error(err) != rpctypes.ErrPermissionDenied {
		t.Errorf("%v is not etcd's to its client", err)
	}
	info := infoOf(t, err)
	if info.Reason != "DENIED" || !strings.Contains(info.Metadata["what"], `/b/\xff`) || !strings.Contains(info.Metadata["caller"], "worker/a") {
		t.Errorf("details %v", info)
	}
	if err := a.Authorize(context.Background(), access.Identity{}, pb.KV_Put_FullMethodName, &pb.PutRequest{}); rpctypes.Error(err) != rpctypes.ErrUserEmpty {
		t.Errorf("nobody: %v", err)
	}
	// A message of another method's is no way around the check.
	if err := a.Authorize(context.Background(), callers["a"], pb.KV_Range_FullMethodName, &pb.PutRequest{Key: []byte("/a/")}); status.Code(err) != codes.PermissionDenied {
		t.Errorf("a put as a range: %v", err)
	}
}

// Alarms may be asked for by everybody, as a look at a server's health does, and
// changed by who runs the store.
func TestAlarmsAreChangedByOperators(t *testing.T) {
	a := authorizing()
	for name, may := range map[string]bool{"reader-a": false, "a": false, "worker": false, "boss-a": false, "keyboss": true, "boss": true} {
		for action, want := range map[pb.AlarmRequest_AlarmAction]bool{pb.AlarmRequest_GET: true, pb.AlarmRequest_ACTIVATE: may, pb.AlarmRequest_DEACTIVATE: may, 7: may} {
			err := a.Authorize(context.Background(), callers[name], pb.Maintenance_Alarm_FullMethodName, &pb.AlarmRequest{Action: action})
			if (err == nil) != want {
				t.Errorf("%s: alarm action %v: %v", name, action, err)
			}
		}
	}
}
