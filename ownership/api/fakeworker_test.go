package api

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"google.golang.org/grpc"

	pb "github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
)

// fakeWorker speaks the worker's side of a session stream, message by message, so
// that a test can say just what is sent and when.
type fakeWorker struct {
	t      *testing.T
	stream pb.SessionService_AttachClient
	cancel context.CancelFunc
	in     chan *pb.AttachResponse
	err    chan error // how the stream ended
	// mute keeps it from answering pings.
	mute bool
	// leases held, by partition, as told.
	held map[uint32]uint64
	open *pb.SessionOpened
}

func dialWorker(t *testing.T, conn *grpc.ClientConn, first *pb.AttachRequest) *fakeWorker {
	t.Helper()
	return attachAs(t.Context(), t, conn, first)
}

// attachAs is dialWorker with what the context presents.
func attachAs(ctx context.Context, t *testing.T, conn *grpc.ClientConn, first *pb.AttachRequest) *fakeWorker {
	t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	stream, err := pb.NewSessionServiceClient(conn).Attach(ctx)
	if err != nil {
		t.Fatal(err)
	}
	p := &fakeWorker{t: t, stream: stream, cancel: cancel, in: make(chan *pb.AttachResponse, 1024), err: make(chan error, 1), held: map[uint32]uint64{}}
	t.Cleanup(cancel)
	p.send(first)
	go func() {
		for {
			m, err := stream.Recv()
			if err != nil {
				p.err <- err
				close(p.in)
				return
			}
			p.in <- m
		}
	}()
	return p
}

func (p *fakeWorker) send(m *pb.AttachRequest) {
	p.t.Helper()
	if err := p.stream.Send(m); err != nil && !errors.Is(err, io.EOF) {
		p.t.Fatal(err)
	}
}

// next returns the next message that is not a ping.
func (p *fakeWorker) next() *pb.AttachResponse {
	p.t.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		select {
		case m, ok := <-p.in:
			if !ok {
				p.t.Fatalf("the stream ended: %v", <-p.err)
			}
			if m.GetPing() != nil {
				if !p.mute {
					p.send(&pb.AttachRequest{Request: &pb.AttachRequest_Pong{Pong: &pb.Pong{}}})
				}
				continue
			}
			p.take(m)
			return m
		case <-timer.C:
			p.t.Fatalf("no message for %v", patience)
		}
	}
}

// until reads on until ok.
func (p *fakeWorker) until(ok func(*pb.AttachResponse) bool) *pb.AttachResponse {
	p.t.Helper()
	for {
		if m := p.next(); ok(m) {
			return m
		}
	}
}

// end is how the stream ended, with all that came before.
func (p *fakeWorker) end() error {
	p.t.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		select {
		case m, ok := <-p.in:
			if !ok {
				return <-p.err
			}
			p.take(m)
		case <-timer.C:
			p.t.Fatalf("the stream did not end for %v", patience)
		}
	}
}

func (p *fakeWorker) take(m *pb.AttachResponse) {
	switch r := m.GetResponse().(type) {
	case *pb.AttachResponse_Opened:
		p.open = r.Opened
	case *pb.AttachResponse_Leases:
		clear(p.held)
		for _, g := range r.Leases.GetGranted() {
			p.add(g)
		}
	case *pb.AttachResponse_Changes:
		for _, g := range r.Changes.GetRevoked() {
			for _, part := range g.GetPartitions() {
				delete(p.held, part)
			}
		}
		for _, g := range r.Changes.GetGranted() {
			p.add(g)
		}
	}
}

func (p *fakeWorker) add(g *pb.Leases) {
	for i, part := range g.GetPartitions() {
		p.held[part] = g.GetTokens()[i]
	}
}

func (p *fakeWorker) keepAlive(seq uint64, hash uint64) {
	p.t.Helper()
	p.send(&pb.AttachRequest{Request: &pb.AttachRequest_KeepAlive{KeepAlive: &pb.KeepAliveRequest{
		SessionId: p.open.GetSessionId(), Seq: seq, RunningHash: hash, Running: uint32(len(p.held)),
	}}})
}

// sum is the running hash of a worker that runs all it holds.
func (p *fakeWorker) sum(keyspace uint32) (h uint64) {
	for part, token := range p.held {
		h ^= pb.LeaseHash(keyspace, part, token)
	}
	return h
}

func (p *fakeWorker) release(request uint64, cause pb.ReleaseCause, refs ...*pb.LeaseRef) *pb.LeasesReleased {
	p.t.Helper()
	p.send(&pb.AttachRequest{Request: &pb.AttachRequest_Release{Release: &pb.ReleaseLeases{Request: request, Leases: refs, Cause: cause}}})
	m := p.until(func(m *pb.AttachResponse) bool { return m.GetReleased().GetRequest() == request })
	return m.GetReleased()
}

func (p *fakeWorker) holds(n int) {
	p.t.Helper()
	for len(p.held) != n {
		p.next()
	}
}

func openRequest(id uint64, worker string, keyspaces ...string) *pb.AttachRequest {
	return &pb.AttachRequest{Request: &pb.AttachRequest_Open{Open: &pb.OpenSession{SessionId: id, WorkerId: worker, Keyspaces: keyspaces}}}
}

func resumeRequest(id uint64, worker string) *pb.AttachRequest {
	return &pb.AttachRequest{Request: &pb.AttachRequest_Resume{Resume: &pb.ResumeSession{SessionId: id, WorkerId: worker}}}
}

// openWorker opens a session and reads opened and the first list.
func openWorker(t *testing.T, conn *grpc.ClientConn, id uint64, worker string, keyspaces ...string) *fakeWorker {
	t.Helper()
	p := dialWorker(t, conn, openRequest(id, worker, keyspaces...))
	if p.next().GetOpened() == nil || p.next().GetLeases() == nil {
		t.Fatal("want opened, then the list")
	}
	return p
}
