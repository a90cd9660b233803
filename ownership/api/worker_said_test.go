package api

import (
	"testing"

	pb "github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
)

// What a worker says of itself is shown, also after its stream broke and it
// resumed: the version travels with both ways to begin a stream.
func TestListWorkersShowsWhatTheWorkerSays(t *testing.T) {
	c := startCluster(t, 1)
	conn := c.leader(t).dial(t)
	createKeyspace(t, conn, "orders", 4)
	open := openRequest(11, "w1", "orders")
	open.GetOpen().Version = "1.2.3"
	first := dialWorker(t, conn, open)
	first.until(func(m *pb.AttachResponse) bool { return m.GetOpened() != nil })
	shown := func(p *fakeWorker, r *pb.KeepAliveRequest) *pb.Worker {
		t.Helper()
		r.SessionId = 11
		p.send(&pb.AttachRequest{Request: &pb.AttachRequest_KeepAlive{KeepAlive: r}})
		p.until(func(m *pb.AttachResponse) bool { return m.GetKeepAlive().GetSeq() == r.GetSeq() })
		ws, err := pb.NewWorkerServiceClient(conn).ListWorkers(t.Context(), &pb.ListWorkersRequest{})
		if err != nil || len(ws.GetItems()) != 1 {
			t.Fatalf("workers = %v, %v", ws, err)
		}
		return ws.GetItems()[0]
	}
	w := shown(first, &pb.KeepAliveRequest{Seq: 1, LongestPauseMs: 1234, FencingChecks: 7, FencingRejections: 2, Overruns: 1})
	if w.GetLongestPauseMs() != 1234 || w.GetFencingChecks() != 7 || w.GetFencingRejections() != 2 || w.GetOverruns() != 1 || w.GetVersion() != "1.2.3" {
		t.Errorf("worker = %v", w)
	}
	first.cancel()
	_ = first.end()
	resume := resumeRequest(11, "w1")
	resume.GetResume().Version = "1.2.4"
	second := dialWorker(t, conn, resume)
	second.until(func(m *pb.AttachResponse) bool { return m.GetOpened() != nil })
	if w := shown(second, &pb.KeepAliveRequest{Seq: 2, LongestPauseMs: -1}); w.GetLongestPauseMs() != 0 || w.GetVersion() != "1.2.4" {
		t.Errorf("after the resume: worker = %v", w)
	}
}
