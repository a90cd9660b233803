package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/leasehold-dev/leasehold/cmd/leasehold/internal/latency"
	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"github.com/leasehold-dev/leasehold/ownership/pki"
)

// keepers are workers without work, whose sessions are all they have: each keeps its
// own alive over its own stream, and takes the time of every answer.
type keepers struct {
	t *testing.T

	mu    sync.Mutex
	took  []time.Duration
	open  int
	ended []string // why sessions have ended
}

// keepEvery is how often a session is kept alive: two thousand times a second
// would be load by itself.
const keepEvery = 500 * time.Millisecond

// keep opens n sessions, spread over the servers and few connections, until the
// test ends or stop is called.
func keep(t *testing.T, f *fortress, files pki.Files, worker, keyspace string, n int) (k *keepers, stop func()) {
	t.Helper()
	k = &keepers{t: t}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	var conns []*grpc.ClientConn
	for _, s := range f.Servers() {
		cfg, err := pki.Client(files)
		if err != nil {
			t.Fatal(err)
		}
		conn, err := grpc.NewClient(s.GRPCAddr, grpc.WithTransportCredentials(credentials.NewTLS(cfg)))
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, conn)
	}
	for i := range n {
		wg.Go(func() {
			err := k.session(ctx, conns[i%len(conns)], fmt.Sprintf("%s-%d", worker, i), keyspace)
			if ctx.Err() == nil {
				k.mu.Lock()
				defer k.mu.Unlock()
				k.ended = append(k.ended, fmt.Sprintf("session %d: %v", i, err))
			}
		})
	}
	stop = sync.OnceFunc(func() {
		cancel()
		wg.Wait()
		for _, c := range conns {
			_ = c.Close()
		}
	})
	t.Cleanup(stop)
	waitFor(t, fmt.Sprintf("%d sessions", n), func() bool {
		k.mu.Lock()
		defer k.mu.Unlock()
		return k.open == n || len(k.ended) > 0
	})
	return k, stop
}

// session opens one and keeps it alive until something fails.
func (k *keepers) session(ctx context.Context, conn *grpc.ClientConn, worker, keyspace string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := leaseholdv1.NewSessionServiceClient(conn).Attach(ctx, grpc.WaitForReady(true))
	if err != nil {
		return err
	}
	id := rand.Uint64()>>1 | 1
	err = stream.Send(&leaseholdv1.AttachRequest{Request: &leaseholdv1.AttachRequest_Open{Open: &leaseholdv1.OpenSession{
		SessionId: id, WorkerId: worker, Keyspaces: []string{keyspace},
	}}})
	if err != nil {
		return err
	}
	answers := make(chan *leaseholdv1.AttachResponse)
	failed := make(chan error, 1)
	go func() {
		for {
			r, err := stream.Recv()
			if err != nil {
				failed <- err
				return
			}
			select {
			case answers <- r:
			case <-ctx.Done():
				failed <- context.Cause(ctx)
				return
			}
		}
	}()
	defer func() { cancel(); <-failed }()
	every := time.NewTimer(time.Duration(rand.Int64N(int64(keepEvery))))
	defer every.Stop()
	var seq uint64
	sent := map[uint64]time.Time{}
	opened := false
	for {
		select {
		case err := <-failed:
			failed <- err
			return err
		case <-every.C:
			every.Reset(keepEvery)
			if !opened {
				continue
			}
			seq++
			sent[seq] = time.Now()
			err = stream.Send(&leaseholdv1.AttachRequest{Request: &leaseholdv1.AttachRequest_KeepAlive{KeepAlive: &leaseholdv1.KeepAliveRequest{SessionId: id, Seq: seq}}})
		case r := <-answers:
			switch r := r.GetResponse().(type) {
			case *leaseholdv1.AttachResponse_Opened:
				opened = true
				k.mu.Lock()
				k.open++
				k.mu.Unlock()
			case *leaseholdv1.AttachResponse_Ping:
				err = stream.Send(&leaseholdv1.AttachRequest{Request: &leaseholdv1.AttachRequest_Pong{Pong: &leaseholdv1.Pong{}}})
			case *leaseholdv1.AttachResponse_KeepAlive:
				if at, ok := sent[r.KeepAlive.GetSeq()]; ok {
					delete(sent, r.KeepAlive.GetSeq())
					k.mu.Lock()
					k.took = append(k.took, time.Since(at))
					k.mu.Unlock()
				}
			case *leaseholdv1.AttachResponse_Closed:
				return fmt.Errorf("closed: %v", r.Closed.GetError())
			}
		}
		if err != nil {
			return err
		}
	}
}

// during summarises the answers that arrive while something goes on.
func (k *keepers) during(what func()) (latency.Summary, int) {
	k.mu.Lock()
	k.took = nil
	k.mu.Unlock()
	what()
	k.mu.Lock()
	defer k.mu.Unlock()
	return latency.Summarise(k.took), len(k.took)
}

// lost says which sessions have ended, and why.
func (k *keepers) lost() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.ended
}
