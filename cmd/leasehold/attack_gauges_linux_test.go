package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/leasehold-dev/leasehold/cmd/leasehold/internal/cluster"
	"github.com/leasehold-dev/leasehold/ownership/pki"
	"github.com/leasehold-dev/leasehold/raftstore/access"
)

// gauges are figures of the servers, as they say them.
type gauges struct {
	t       *testing.T
	servers []*cluster.Server
	client  *http.Client

	mu     sync.Mutex
	before []map[string]float64
	most   []float64 // resident memory
}

const (
	gaugeMemory     = "process_resident_memory_bytes"
	gaugeFiles      = "process_open_fds"
	gaugeGoroutines = "go_goroutines"
	gaugeLimit      = "leasehold_limit_rejections_total"
	gaugeDenied     = "leasehold_auth_failures_total"
	gaugeGossip     = "leasehold_gossip_rejected_packets_total"
)

// watchGauges looks at the memory of all servers until the test ends, over
// connections that are there before any trouble.
func watchGauges(t *testing.T, f *fortress) *gauges {
	t.Helper()
	cfg, err := pki.Client(f.issue(access.Reader, "prometheus"))
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{TLSClientConfig: cfg}
	g := &gauges{t: t, servers: f.Servers(), client: &http.Client{Transport: transport, Timeout: 10 * time.Second}}
	g.most = make([]float64, len(g.servers))
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for i := range g.servers {
		wg.Go(func() {
			for ctx.Err() == nil {
				if now, err := g.ask(ctx, i); err == nil {
					g.mu.Lock()
					g.most[i] = max(g.most[i], now[gaugeMemory])
					g.mu.Unlock()
				}
				pass(ctx, 500*time.Millisecond)
			}
		})
	}
	t.Cleanup(func() {
		cancel()
		wg.Wait()
		transport.CloseIdleConnections()
	})
	return g
}

// ask reads the figures of a server; those of several series are added up.
func (g *gauges) ask(ctx context.Context, i int) (map[string]float64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+g.servers[i].HTTPAddr+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	r, err := g.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil || r.StatusCode != http.StatusOK {
		return nil, errors.Join(fmt.Errorf("status %s", r.Status), err)
	}
	sums := map[string]float64{}
	for lines := bufio.NewScanner(bytes.NewReader(body)); lines.Scan(); {
		series, value, ok := strings.Cut(lines.Text(), " ")
		if v, err := strconv.ParseFloat(value, 64); ok && err == nil {
			name, labels, _ := strings.Cut(series, "{")
			sums[name] += v
			if name == gaugeLimit || name == gaugeDenied || name == gaugeGossip {
				sums["{"+labels] += v
			}
		}
	}
	return sums, nil
}

func (g *gauges) all() (all []map[string]float64) {
	g.t.Helper()
	for i := range g.servers {
		waitFor(g.t, "the figures of "+g.servers[i].ID, func() bool {
			now, err := g.ask(g.t.Context(), i)
			if err == nil {
				all = append(all, now)
			}
			return err == nil
		})
	}
	return all
}

// mark remembers the figures.
func (g *gauges) mark() { g.before = g.all() }

// settled waits until what the attack has opened and started is gone.
func (g *gauges) settled() {
	g.t.Helper()
	for i, s := range g.servers {
		var now map[string]float64
		ctx, cancel := context.WithTimeout(g.t.Context(), 90*time.Second)
		err := poll(ctx, 200*time.Millisecond, func() (bool, error) {
			if fresh, err := g.ask(ctx, i); err == nil {
				now = fresh
			}
			return now != nil && now[gaugeFiles] <= g.before[i][gaugeFiles]+10 && now[gaugeGoroutines] <= g.before[i][gaugeGoroutines]+50, nil
		})
		cancel()
		if err != nil {
			g.t.Errorf("%s has %v files and %v goroutines after the attack, %v and %v before", s.ID,
				now[gaugeFiles], now[gaugeGoroutines], g.before[i][gaugeFiles], g.before[i][gaugeGoroutines])
		}
	}
}

// judge looks at memory, and at what was counted.
func (g *gauges) judge() {
	g.t.Helper()
	after := g.all()
	g.mu.Lock()
	defer g.mu.Unlock()
	for i, s := range g.servers {
		grown := g.most[i] - g.before[i][gaugeMemory]
		g.t.Logf("%s: %.0f MiB in calm, %.0f MiB at most, %.0f MiB afterwards", s.ID, g.before[i][gaugeMemory]/(1<<20), g.most[i]/(1<<20), after[i][gaugeMemory]/(1<<20))
		if grown > attackMemory {
			g.t.Errorf("%s grew by %.0f MiB, at most %d are fine", s.ID, grown/(1<<20), attackMemory>>20)
		}
		for _, name := range []string{gaugeLimit, gaugeDenied, gaugeGossip} {
			if after[i][name] <= g.before[i][name] {
				g.t.Errorf("%s: %s has not risen", s.ID, name)
			}
		}
		var said []string
		for name := range after[i] {
			if d := after[i][name] - g.before[i][name]; strings.HasPrefix(name, "{") && d > 0 {
				said = append(said, fmt.Sprintf("%s %.0f", strings.Trim(name, "{}"), d))
			}
		}
		slices.Sort(said)
		g.t.Logf("%s counted %s", s.ID, strings.Join(said, ", "))
	}
}
