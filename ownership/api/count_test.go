package api

import (
	"context"
	"errors"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Every method has a word that the metrics know, and is a read only if it
// changes nothing.
func TestEveryMethodIsCountedUnderItsWord(t *testing.T) {
	var m meters
	var cfg Config
	m.add(&cfg)
	table, err := methodTable()
	if err != nil {
		t.Fatal(err)
	}
	for name, method := range table {
		cfg.Metrics.Call("native", method.call, "ok")
		if n := m.sum(t, "rpc_requests_total", "other"); n != 0 {
			t.Fatalf("%s is counted as other, under %q", name, method.call)
		}
		if method.kind == "read" && !method.local && !method.reads {
			t.Errorf("%s is timed as a read", name)
		}
	}
	if n := m.sum(t, "rpc_requests_total", "ok"); n != float64(len(table)) {
		t.Errorf("%v calls counted, want %d", n, len(table))
	}
}

func TestOutcomesOfCalls(t *testing.T) {
	for want, errs := range map[string][]error{
		"ok":          {nil, status.Error(codes.Canceled, "")},
		"refused":     {status.Error(codes.InvalidArgument, ""), status.Error(codes.NotFound, ""), status.Error(codes.FailedPrecondition, "")},
		"unavailable": {status.Error(codes.Unavailable, ""), status.Error(codes.Internal, ""), status.Error(codes.DeadlineExceeded, ""), errors.New("x"), context.DeadlineExceeded},
	} {
		for _, err := range errs {
			if got := outcomeOf(err); got != want {
				t.Errorf("%v is %q, want %q", err, got, want)
			}
		}
	}
}
