package api

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/client"
	pb "github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"github.com/leasehold-dev/leasehold/ownership/worker"
	"github.com/leasehold-dev/leasehold/raftstore"
)

// O-69: client and worker are with the leader when it is cut off from the other
// servers only. Both go elsewhere: calls with a deadline and without end, the
// worker's session lives and its handler is not stopped.
func TestClientPinnedToAnIsolatedServer(t *testing.T) {
	c := startCluster(t, 3)
	isolated := c.leader(t)
	addrs := []string{isolated.addr} // the first choice
	for _, s := range c.servers {
		if s != isolated {
			addrs = append(addrs, s.addr)
		}
	}
	const ttl = 8 * time.Second
	createKeyspace(t, isolated.dial(t), "orders", 2, func(r *pb.CreateKeyspaceRequest) { r.TtlMs = ttl.Milliseconds() })
	cl, err := client.Dial(t.Context(), client.Config{Servers: strings.Join(addrs, ","), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	ctx, cancel := context.WithCancel(context.Background())
	w, err := worker.Join(ctx, worker.Config{Servers: strings.Join(addrs, ","), ID: "w1", Gossip: worker.GossipOff, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	started, ended, done := make(chan struct{}, 8), make(chan error, 8), make(chan error, 1)
	go func() {
		done <- w.Run(ctx, "orders", func(ctx context.Context, l *worker.Lease) error {
			started <- struct{}{}
			select {
			case <-l.Draining():
				return nil
			case <-ctx.Done():
				ended <- context.Cause(ctx)
				return context.Cause(ctx)
			}
		})
	}()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the worker's end: %v", err)
		}
	}()
	<-started
	<-started
	session := func() uint64 {
		r, err := cl.Workers().ListWorkers(t.Context(), &pb.ListWorkersRequest{}) // no deadline
		if err != nil || len(r.GetItems()) != 1 {
			t.Fatalf("workers: %v, %v", r, err)
		}
		return r.GetItems()[0].GetSessionId()
	}
	before := session()
	cut := time.Now()
	isolated.net.cut() // from its peers; clients still reach it
	short, stop := context.WithTimeout(t.Context(), 5*time.Second)
	defer stop()
	if _, err := cl.Keyspaces().GetKeyspace(short, &pb.GetKeyspaceRequest{Name: "orders"}); err != nil {
		t.Errorf("with a deadline of 5 s: %v", err)
	}
	if after := session(); after != before {
		t.Errorf("session %d, then %d", before, after)
	}
	eventually(t, "worker attached elsewhere", func() bool {
		r, err := cl.Workers().ListWorkers(t.Context(), &pb.ListWorkersRequest{})
		return err == nil && len(r.GetItems()) == 1 && r.GetItems()[0].GetAttached()
	})
	if took := time.Since(cut); took > ttl/2+2*time.Second {
		t.Errorf("the worker was elsewhere after %v", took)
	}
	quiet := time.NewTimer(ttl)
	defer quiet.Stop()
	select {
	case err := <-ended:
		t.Errorf("a handler was stopped: %v", err)
	case <-quiet.C:
	}
	if after := session(); after != before {
		t.Errorf("session %d, then %d a TTL later", before, after)
	}
}

// O-68, over JSON, and by a transfer to a named server too: every method on
// every server answers all through it with success, a refusal of what it was
// given, or "unavailable", in time, and with no leader there is no hint at one.
func TestJSONCallsWhileThereIsNoLeader(t *testing.T) {
	c := startCluster(t, 3)
	leader := c.leader(t)
	createKeyspace(t, leader.dial(t), "orders", 8)
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	var mu sync.Mutex
	good := map[string]int{}
	const skipped = 5 // methods, see below
	for _, s := range c.servers {
		srv := httptest.NewServer(s.guard.HTTP(s.api.HTTPHandler(s.guard)))
		defer srv.Close()
		for name := range s.api.methods {
			switch name {
			case pb.SessionService_Attach_FullMethodName, pb.EventService_WatchEvents_FullMethodName,
				pb.ClusterService_SaveBackup_FullMethodName, pb.ClusterService_CollectDebug_FullMethodName:
				continue // streams: the first has no twin, the others answer one message after another
			case pb.ClusterService_TransferLeadership_FullMethodName:
				continue // would take the leader away from all the others, again and again
			}
			wg.Go(func() {
				for paced(ctx) {
					begun := time.Now()
					r, err := http.NewRequestWithContext(ctx, http.MethodPost, srv.URL+name, strings.NewReader("{}"))
					if err != nil {
						t.Error(err)
						return
					}
					r.Header.Set("Content-Type", "application/json")
					r.Header.Set("Connect-Timeout-Ms", "5000")
					resp, err := srv.Client().Do(r)
					if err != nil {
						if ctx.Err() == nil {
							t.Errorf("%s on %s: %v", name, s.id, err)
						}
						return
					}
					body, _ := io.ReadAll(resp.Body)
					_ = resp.Body.Close()
					if ctx.Err() != nil {
						return
					}
					if took := time.Since(begun); took > 7*time.Second {
						t.Errorf("%s on %s took %v", name, s.id, took)
					}
					var m struct {
						Code    string
						Details []struct{ Debug map[string]any }
					}
					if err := json.Unmarshal(body, &m); err != nil {
						t.Errorf("%s on %s answers no JSON: %.200q", name, s.id, body)
					}
					switch m.Code {
					case "", "invalid_argument", "not_found", "failed_precondition":
						mu.Lock()
						good[s.id+name]++
						mu.Unlock()
					case "unavailable", "deadline_exceeded", "unknown":
						if len(m.Details) == 0 || m.Details[0].Debug["reason"] == nil {
							t.Errorf("%s on %s: untyped: %.300s", name, s.id, body)
						} else if d := m.Details[0].Debug; d["reason"] == pb.ReasonFeature { // the servers are at the first level
							mu.Lock()
							good[s.id+name]++
							mu.Unlock()
						} else if d["reason"] == pb.ReasonNoLeader && d["leader_id"] != nil {
							t.Errorf("%s on %s: no leader, and yet a hint: %.300s", name, s.id, body)
						}
					default:
						t.Errorf("%s on %s: %d %.300s", name, s.id, resp.StatusCode, body)
					}
				}
			})
		}
	}
	all := 3 * (len(leader.api.methods) - skipped)
	round := func(what string) {
		eventually(t, what, func() bool { mu.Lock(); defer mu.Unlock(); return len(good) == all })
		mu.Lock()
		clear(good)
		mu.Unlock()
	}
	round("first round")
	for range 2 {
		at := c.leader(t)
		to := c.follower(t)
		if err := at.store.TransferLeadership(t.Context(), raftstore.Peer{ID: to.id, RaftAddr: to.net.ln.Addr().String()}); err != nil {
			t.Logf("transfer: %v", err) // a busy machine may have elected another meanwhile
		}
		round("round after a transfer")
	}
	stop()
	wg.Wait()
}
