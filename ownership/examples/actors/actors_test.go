package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/leasehold-dev/leasehold/ownership/examples/internal/exampletest"
)

var soak = flag.Duration("soak", 6*time.Second, "how long TestKillPauseAndDrain makes trouble")

const ttl = 2 * time.Second

// caller is a client of the front that tries again until it is answered.
type caller struct {
	front string
	http  *http.Client
	tries atomic.Int64
}

func (c *caller) once(ctx context.Context, method, url, request string) (reply, error) {
	c.tries.Add(1)
	ctx, cancel := context.WithTimeout(ctx, time.Second) // an owner that is paused does not answer
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, c.front+url, nil)
	if err != nil {
		return reply{}, err
	}
	req.Header.Set("Request-Id", request)
	resp, err := c.http.Do(req)
	if err != nil {
		return reply{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return reply{}, err
	}
	if resp.StatusCode != http.StatusOK {
		return reply{}, fmt.Errorf("%s: %s", resp.Status, body)
	}
	var r reply
	return r, json.Unmarshal(body, &r)
}

func (c *caller) call(ctx context.Context, method, url, request string) (r reply, err error) {
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		if r, err = c.once(ctx, method, url, request); err == nil {
			return r, nil
		}
		select {
		case <-ctx.Done():
			return r, ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
	return r, fmt.Errorf("no answer to %s %s in a minute: %w", method, url, err)
}

// Clients count, each request under an id of its own and repeated until it is
// answered, while owners are killed, paused, stopped and drained. At the end
// each tenant has exactly as many as there were requests.
func TestKillPauseAndDrain(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))

	dsn := database(t)
	bin := exampletest.Build(t, "ownership/examples/actors")
	cluster := exampletest.StartCluster(t, "actors", 8, ttl)
	migrate := exampletest.Start(t, "migrate", bin, "migrate", "--db", dsn)
	if err := migrate.Err(); err != nil {
		t.Fatal(err, migrate.Output())
	}
	ids := []string{"a1", "a2", "a3"}
	owners := map[string]*exampletest.Process{}
	start := func(id string) {
		owners[id] = exampletest.Start(t, id, bin, "serve", "--db", dsn, "--servers", cluster.Server, "--id", id)
	}
	for _, id := range ids {
		start(id)
	}
	front := exampletest.Start(t, "front", bin, "front", "--servers", cluster.Server, "--listen", "127.0.0.1:0")
	transport := &http.Transport{MaxIdleConnsPerHost: 16}
	defer transport.CloseIdleConnections()
	c := &caller{front: front.Await("listening on "), http: &http.Client{Transport: transport}}

	const clients, tenants = 6, 12
	var sent [tenants]atomic.Int64
	deadline := time.Now().Add(*soak)
	g, ctx := errgroup.WithContext(t.Context())
	for client := range clients {
		g.Go(func() error {
			var seen [tenants]int64
			for i := 0; time.Now().Before(deadline); i++ {
				n := (client + i) % tenants
				r, err := c.call(ctx, http.MethodPost, fmt.Sprintf("/tenants/t%d/add?n=1", n), fmt.Sprintf("%d-%d", client, i))
				if err != nil {
					return err
				}
				if !r.Replayed && r.Value <= seen[n] {
					return fmt.Errorf("t%d fell from %d to %d", n, seen[n], r.Value)
				}
				seen[n] = max(seen[n], r.Value)
				sent[n].Add(1)
			}
			return nil
		})
	}
	tally := map[string]int{}
	for i := 0; time.Now().Before(deadline); i++ {
		id := ids[random.IntN(len(ids))]
		p := owners[id]
		select {
		case <-p.Done():
			t.Fatalf("%s has ended by itself: %v\n%s", id, p.Err(), p.Output())
		case <-time.After(time.Duration(200+random.IntN(500)) * time.Millisecond):
		}
		if i%4 == 3 {
			cluster.Forgive()
		}
		what := []string{"kill", "pause", "drain", "stop"}[i%4]
		tally[what]++
		switch what {
		case "kill":
			p.Kill()
			start(id)
		case "pause":
			p.Pause()
			<-time.After(ttl/2 + time.Duration(random.Int64N(int64(ttl)))) // shorter and longer than its lease
			p.Resume()
		case "drain":
			cluster.Run("workers", "drain", id)
			cluster.Run("workers", "undrain", id)
		case "stop":
			if err := p.Terminate(); err != nil {
				t.Errorf("%s after SIGTERM: %v", id, err)
			}
			start(id)
		}
	}
	cluster.Forgive()
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	s, total := opened(t, dsn), int64(0)
	for n := range tenants {
		name, want := fmt.Sprintf("t%d", n), sent[n].Load()
		r, err := c.call(t.Context(), http.MethodGet, "/tenants/"+name, "")
		if err != nil {
			t.Fatal(err)
		}
		value, requests := s.stored(t, name)
		if r.Value != want || value != want || requests != want {
			t.Errorf("%s: %d requests were answered; its owner says %d, the database %d of %d requests", name, want, r.Value, value, requests)
		}
		total += want
	}
	t.Logf("%d requests in %d tries, %v", total, c.tries.Load(), tally)
}
