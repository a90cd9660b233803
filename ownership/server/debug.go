package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"runtime/debug"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/leasehold-dev/leasehold/ownership/api"
	"github.com/leasehold-dev/leasehold/raftstore/state"
	"github.com/leasehold-dev/leasehold/ring/gossip"
)

// debugFiles are what this package adds to a debug archive.
func (s *Server) debugFiles() []api.DebugFile {
	files := []api.DebugFile{
		{Name: "metrics.prom", Late: true, Read: s.metricsText},
		{Name: "members.json", Late: true, Read: s.membersJSON},
		{Name: "config.json", Read: func(context.Context) ([]byte, error) { return indented(s.settings()) }},
		{Name: "build.json", Read: func(context.Context) ([]byte, error) { return indented(buildFacts(s.cfg.Version)) }},
	}
	if s.cfg.RecentLog != nil {
		files = append(files, api.DebugFile{Name: "log.jsonl", Late: true, Read: func(context.Context) ([]byte, error) {
			return s.cfg.RecentLog(), nil
		}})
	}
	return files
}

// secrets are looked for in all that leaves with a debug archive.
func (s *Server) secrets() []string {
	out := append([]string(nil), s.cfg.Secrets...)
	if len(s.cfg.GossipKey) > 0 {
		out = append(out, secretsOf(state.Keyring{Keys: [][]byte{s.cfg.GossipKey}})...)
	}
	return append(out, secretsOf(s.firstKeys)...)
}

// settings lists what is in effect. It is a list of what may be shown, not of
// what may not: a setting that is added to Config is not shown until it is
// added here.
func (s *Server) settings() map[string]any {
	c := &s.cfg
	key := "none"
	if n := len(c.GossipKey); n > 0 {
		key = fmt.Sprintf("%d bytes, not shown", n)
	}
	return map[string]any{
		"id": s.id, "data_dir": c.DataDir, "advertise": c.Advertise, "join": c.Join,
		"grpc_addr": c.GRPCAddr, "raft_addr": c.RaftAddr, "gossip_addr": c.GossipAddr, "http_addr": c.HTTPAddr, "admin_addr": c.AdminAddr, "console": c.console(),
		"reached_at":       s.addrs,
		"bootstrap_expect": c.BootstrapExpect, "gossip_label": c.GossipLabel, "gossip_key": key, "insecure": c.Insecure,
		"election_timeout": c.ElectionTimeout.String(), "initial_delay": c.InitialDelay.String(), "shutdown_timeout": c.ShutdownTimeout.String(),
		"quota_bytes": c.QuotaBytes, "compact_age": c.CompactAge.String(), "compact_revisions": c.CompactRevisions,
		"token_floor": c.TokenFloor,
	}
}

// buildFacts say what runs and on how much of a machine.
func buildFacts(version string) map[string]any {
	out := map[string]any{
		"version": version, "go": runtime.Version(), "platform": runtime.GOOS + "/" + runtime.GOARCH,
		"cpus": runtime.NumCPU(), "gomaxprocs": runtime.GOMAXPROCS(0),
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		modules := map[string]string{}
		for _, m := range info.Deps {
			modules[m.Path] = m.Version
		}
		out["modules"] = modules
	}
	return out
}

func indented(v any) ([]byte, error) {
	raw, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encode: %w", err)
	}
	return append(raw, '\n'), nil
}

// membersJSON is the member table with all that members say of themselves.
func (s *Server) membersJSON(context.Context) ([]byte, error) {
	type member struct {
		gossip.Member
		Status string
	}
	out := []member{}
	for _, m := range s.gossip.Members() {
		out = append(out, member{m, m.Status.String()})
	}
	return indented(map[string]any{"items": out})
}

// metricsText is what a GET of /metrics shows.
func (s *Server) metricsText(ctx context.Context) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "/metrics", http.NoBody)
	if err != nil {
		return nil, err
	}
	var page pageBuffer
	promhttp.HandlerFor(s.registry, promhttp.HandlerOpts{DisableCompression: true}).ServeHTTP(&page, r)
	if page.code != 0 && page.code != http.StatusOK {
		return nil, errors.New(page.body.String())
	}
	return page.body.Bytes(), nil
}

// pageBuffer is a response in memory.
type pageBuffer struct {
	header http.Header
	code   int
	body   bytes.Buffer
}

func (p *pageBuffer) Header() http.Header {
	if p.header == nil {
		p.header = http.Header{}
	}
	return p.header
}

func (p *pageBuffer) WriteHeader(code int) { p.code = code }

func (p *pageBuffer) Write(b []byte) (int, error) { return p.body.Write(b) }
