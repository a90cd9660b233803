package api

import (
	"fmt"
	"sync"
	"syscall"
	"testing"
	"time"

	pb "github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
)

// A round of 1,000 keep-alives, each session's on its own stream: what one
// quarter of a TTL costs. cpu-s/min is for 1,000 sessions at TTL 10 s, worker
// and server together in this one process.
func BenchmarkKeepAlives(b *testing.B) {
	const sessions = 1000
	leader := startCluster(b, 1).leader(b)
	conn := leader.dial(b)
	var streams []pb.SessionService_AttachClient
	if _, err := pb.NewKeyspaceServiceClient(conn).CreateKeyspace(b.Context(), &pb.CreateKeyspaceRequest{Name: "orders", Partitions: sessions, TtlMs: 3_600_000}); err != nil {
		b.Fatal(err)
	}
	acked := make(chan uint64, sessions)
	var wg sync.WaitGroup
	for i := range sessions {
		stream, err := pb.NewSessionServiceClient(conn).Attach(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		if err := stream.Send(openRequest(uint64(i+1), fmt.Sprintf("w%d", i), "orders")); err != nil {
			b.Fatal(err)
		}
		if m, err := stream.Recv(); err != nil || m.GetOpened() == nil {
			b.Fatal(m, err)
		}
		streams = append(streams, stream)
		wg.Go(func() {
			for {
				m, err := stream.Recv()
				if err != nil {
					return
				}
				if ka := m.GetKeepAlive(); ka != nil {
					acked <- ka.GetSeq()
				}
			}
		})
	}
	seq := uint64(0)
	round := func() {
		seq++
		for i, s := range streams {
			r := &pb.AttachRequest{Request: &pb.AttachRequest_KeepAlive{KeepAlive: &pb.KeepAliveRequest{SessionId: uint64(i + 1), Seq: seq}}}
			if err := s.Send(r); err != nil {
				b.Fatal(err)
			}
		}
		for range streams {
			<-acked
		}
	}
	round()
	begun := cpuTime(b)
	n := 0
	for b.Loop() {
		round()
		n++
	}
	b.ReportMetric((cpuTime(b)-begun).Seconds()/float64(n)*24, "cpu-s/min")
	leader.stop()
	wg.Wait()
}

func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
