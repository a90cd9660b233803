package auth

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leasehold-dev/leasehold/metrics"
	"github.com/leasehold-dev/leasehold/raftstore/access"
)

// What is denied is counted once, on the server that was asked, also where the API
// has words of its own.
func TestDenialsAreCountedInTheWordsOfEveryAPI(t *testing.T) {
	reg := prometheus.NewRegistry()
	a := New(Config{Metrics: metrics.NewServer(reg, metrics.ServerConfig{})})
	id := access.Identity{Source: access.Certificate, Role: access.Reader, Name: "r"}
	etcds := status.Error(codes.PermissionDenied, "etcdserver: permission denied")
	a.entered(caller{id: id}, unaryCall, etcds)
	a.entered(caller{id: id}, unaryCall, Denied(id, "no"))
	a.entered(caller{id: id, forwarded: true}, unaryCall, etcds)
	a.entered(caller{id: id}, unaryCall, status.Error(codes.NotFound, "gone"))
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "leasehold_auth_failures_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			if m.GetLabel()[0].GetValue() == wordDenied && m.GetCounter().GetValue() != 2 {
				t.Errorf("%v were counted, want 2", m.GetCounter().GetValue())
			}
		}
		return
	}
	t.Error("there is no such series")
}
