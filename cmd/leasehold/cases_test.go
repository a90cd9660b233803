package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/client"
	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"github.com/leasehold-dev/leasehold/ownership/server"
	"github.com/leasehold-dev/leasehold/ring/keyrange"
)

// real is a server in this process, asked by gRPC, as JSON and by commands.
type real struct {
	t    *testing.T
	srv  *server.Server
	grpc *client.Client
}

func startReal(t *testing.T, change ...func(*server.Config)) *real {
	t.Helper()
	cfg := server.DevConfig()
	cfg.GRPCAddr, cfg.RaftAddr, cfg.GossipAddr, cfg.HTTPAddr = "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0"
	cfg.ElectionTimeout = server.MinElectionTimeout
	cfg.Logger = slog.New(slog.DiscardHandler)
	for _, f := range change {
		f(&cfg)
	}
	srv, err := server.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- srv.Run(ctx) }()
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	<-srv.Ready()
	cl, err := client.Dial(t.Context(), client.Config{Servers: srv.Addrs().GRPC})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cl.Close() })
	return &real{t, srv, cl}
}

// cli runs a command against the server.
func (r *real) cli(args ...string) (code int, out string) {
	r.t.Helper()
	c := &cli{env: map[string]string{"LEASEHOLD_SERVER": r.srv.Addrs().GRPC}}
	code = c.run(r.t, args...)
	return code, c.stdout.String() + c.stderr.String()
}

// json posts to the JSON twin and returns the HTTP status and the answer.
func (r *real) json(method string, body map[string]any) (int, map[string]any) {
	r.t.Helper()
	data, err := json.Marshal(body)
	if err != nil {
		r.t.Fatal(err)
	}
	resp, err := http.Post("http://"+r.srv.Addrs().HTTP+method, "application/json", bytes.NewReader(data))
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	var m map[string]any
	if err := json.NewDecoder(resp.Body).Decode(&m); err != nil {
		r.t.Fatal(err)
	}
	return resp.StatusCode, m
}

// O-03, O-04, O-05: edge values of a TTL, by gRPC, as JSON and by command. A
// value is refused with the limits, or kept to the millisecond and told back.
func TestTTLEdges(t *testing.T) {
	r := startReal(t)
	n := 0
	name := func() string { n++; return fmt.Sprintf("k%d", n) }
	for _, ms := range []int64{0, -1, 1, 599, 999, 1001, 1500, 3_600_000, 3_600_001, 9_000_000_000, 9_000_000_001, 9_223_372_036, 9_223_372_037,
		9_223_372_036_854, 9_223_372_036_855, 86_400_000_000_000, 1<<63 - 1, -1 << 63} {
		good := ms >= 600 && ms <= 3_600_000
		ks, err := r.grpc.Keyspaces().CreateKeyspace(t.Context(), &leaseholdv1.CreateKeyspaceRequest{Name: name(), Partitions: 1, TtlMs: ms})
		if good != (err == nil) || good && ks.GetTtlMs() != ms || !good && !strings.Contains(err.Error(), "3600000") {
			t.Errorf("%d ms by gRPC: %v, %v", ms, ks.GetTtlMs(), err)
		}
		code, m := r.json(leaseholdv1.KeyspaceService_CreateKeyspace_FullMethodName, map[string]any{"name": name(), "partitions": 1, "ttl_ms": fmt.Sprint(ms)})
		if good && (code != http.StatusOK || m["ttl_ms"] != fmt.Sprint(ms)) || !good && (code != http.StatusBadRequest || !strings.Contains(fmt.Sprint(m["message"]), "3600000")) {
			t.Errorf("%d ms as JSON: %d %v", ms, code, m)
		}
		exit, out := r.cli("keyspace", "create", name(), "--partitions", "1", "--ttl", fmt.Sprintf("%dms", ms), "-o", "json")
		if good && (exit != exitOK || !strings.Contains(out, fmt.Sprintf(`"ttl_ms": "%d"`, ms))) || !good && exit != exitUsage {
			t.Errorf("%d ms by command: exit %d %s", ms, exit, out)
		}
	}
	// A duration where the API wants milliseconds, and fractions of them.
	for _, ttl := range []any{"24h", "1.5", 1500.5, "9223372036854775808", true} {
		if code, m := r.json(leaseholdv1.KeyspaceService_CreateKeyspace_FullMethodName, map[string]any{"name": name(), "partitions": 1, "ttl_ms": ttl}); code != http.StatusBadRequest {
			t.Errorf("ttl_ms %v: %d %v", ttl, code, m)
		}
	}
	list, err := r.grpc.Keyspaces().ListKeyspaces(t.Context(), &leaseholdv1.ListKeyspacesRequest{})
	if err != nil || len(list.GetItems()) != 4*3 {
		t.Errorf("%d keyspaces, want 12: %v", len(list.GetItems()), err)
	}
}

// O-79: a name is refused everywhere, with the alphabet, or comes back exactly
// by gRPC, as JSON, by command and in the metrics, and can be deleted.
func TestOddNamesRoundTripOrAreRefused(t *testing.T) {
	r := startReal(t)
	for _, name := range []string{"", " ", "a/b", "/a", "a//b", "..", "%2F", "#", "?", "\u00a0", "\u200f", "😀", strings.Repeat("x", 300), "a\nb", `"`, "'"} {
		_, err := r.grpc.Keyspaces().CreateKeyspace(t.Context(), &leaseholdv1.CreateKeyspaceRequest{Name: name, Partitions: 1, TtlMs: 5000})
		if d := client.Detail(err); d.GetField() != "name" || !strings.Contains(d.GetLimit(), "A-Z a-z 0-9") {
			t.Errorf("%.20q by gRPC: %v", name, err)
		}
		if code, m := r.json(leaseholdv1.KeyspaceService_CreateKeyspace_FullMethodName, map[string]any{"name": name, "partitions": 1, "ttl_ms": 5000}); code != http.StatusBadRequest {
			t.Errorf("%.20q as JSON: %d %v", name, code, m)
		}
		if exit, out := r.cli("keyspace", "create", "--", name); exit != exitUsage || !strings.Contains(out, "A-Z a-z 0-9") {
			t.Errorf("%.20q by command: exit %d %s", name, exit, out)
		}
		if exit, _ := r.cli("workers", "drain", "--", name); exit != exitUsage && exit != exitNotFound {
			t.Errorf("%.20q as a worker: exit %d", name, exit)
		}
	}
	good := []string{"-", "_", ".a", "a.", "A-1_b.c:9", "null", "true", "0", strings.Repeat("x", 128)}
	for _, name := range good {
		if exit, out := r.cli("keyspace", "create", "--partitions", "1", "--", name); exit != exitOK {
			t.Errorf("%.20q: exit %d %s", name, exit, out)
			continue
		}
		if ks, err := r.grpc.Keyspaces().GetKeyspace(t.Context(), &leaseholdv1.GetKeyspaceRequest{Name: name}); err != nil || ks.GetName() != name {
			t.Errorf("%.20q by gRPC: %v, %v", name, ks.GetName(), err)
		}
		if code, m := r.json(leaseholdv1.KeyspaceService_GetKeyspace_FullMethodName, map[string]any{"name": name}); code != http.StatusOK || m["name"] != name {
			t.Errorf("%.20q as JSON: %d %v", name, code, m)
		}
		if _, out := r.cli("keyspace", "ls", "-o", "json"); !strings.Contains(out, fmt.Sprintf("%q", name)) {
			t.Errorf("%.20q is not in the list", name)
		}
	}
	eventuallyMetrics(t, "http://"+r.srv.Addrs().HTTP+"/metrics", good)
	for _, name := range good {
		if exit, _ := r.cli("keyspace", "rm", "--yes", "--", name); exit != exitOK {
			t.Errorf("%.20q: rm: exit %d", name, exit)
		}
		if exit, _ := r.cli("keyspace", "show", "--", name); exit != exitNotFound {
			t.Errorf("%.20q is there after rm", name)
		}
	}
}

// eventuallyMetrics waits until the metrics have each keyspace under its name.
func eventuallyMetrics(t *testing.T, url string, keyspaces []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var missing []string
	err := poll(ctx, 50*time.Millisecond, func() (bool, error) {
		resp, err := http.Get(url)
		if err != nil {
			return false, err
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		missing = nil
		for _, name := range keyspaces {
			if !strings.Contains(string(body), fmt.Sprintf("leasehold_partitions{keyspace=%q,", name)) {
				missing = append(missing, name)
			}
		}
		return len(missing) == 0, err
	})
	if err != nil {
		t.Errorf("the metrics do not have %q: %v", missing, err)
	}
}

// O-70: by command, by gRPC, as JSON and by the library's function a key is in
// the same partition.
func TestNastyKeysAreInOnePartition(t *testing.T) {
	r := startReal(t)
	const partitions = 997
	if exit, out := r.cli("keyspace", "create", "orders", "--partitions", fmt.Sprint(partitions)); exit != exitOK {
		t.Fatal(out)
	}
	for _, key := range []string{"", "\x00", "a\x00b", "\xff", strings.Repeat("k", 1<<20), "\u00e9", "e\u0301", "a ", "a/../b", "😀"} {
		want := keyrange.Partition([]byte(key), partitions)
		p, err := r.grpc.Partitions().Locate(t.Context(), &leaseholdv1.LocateRequest{Keyspace: "orders", Key: []byte(key)})
		if err != nil || p.GetPartition() != want {
			t.Errorf("%.20q by gRPC: %d, %v; want %d", key, p.GetPartition(), err, want)
		}
		code, m := r.json(leaseholdv1.PartitionService_Locate_FullMethodName, map[string]any{"keyspace": "orders", "key": base64.StdEncoding.EncodeToString([]byte(key))})
		if n, _ := m["partition"].(float64); code != http.StatusOK || uint32(n) != want {
			t.Errorf("%.20q as JSON: %d %v; want %d", key, code, m["partition"], want)
		}
		for _, args := range [][]string{{"locate", "-o", "json", "--", "orders", key}, {"locate", "-o", "json", "orders", "--hex", fmt.Sprintf("%x", key)}} {
			exit, out := r.cli(args...)
			var got struct{ Partition uint32 }
			if err := json.Unmarshal([]byte(out), &got); exit != exitOK || err != nil || got.Partition != want {
				t.Errorf("%.20q by %v: exit %d, %d; want %d: %.200s", key, args[:2], exit, got.Partition, want, out)
			}
		}
	}
}

// O-80: the number of partitions is for ever, whoever asks for another, and the
// refusal has both numbers.
func TestPartitionCountIsForEver(t *testing.T) {
	r := startReal(t)
	if exit, out := r.cli("keyspace", "create", "orders", "--partitions", "64"); exit != exitOK {
		t.Fatal(out)
	}
	for _, p := range []uint32{128, 32, 0} {
		exit, out := r.cli("keyspace", "set", "orders", "--partitions", fmt.Sprint(p))
		if exit != exitUsage || !strings.Contains(out, "64") || !strings.Contains(out, fmt.Sprint(p)) {
			t.Errorf("set to %d: exit %d %s", p, exit, out)
		}
		if exit, _ := r.cli("keyspace", "create", "orders", "--partitions", fmt.Sprint(p)); exit != exitRefused && (p != 0 || exit != exitUsage) {
			t.Errorf("create with %d: exit %d", p, exit)
		}
	}
	if exit, out := r.cli("keyspace", "set", "orders", "--partitions", "64"); exit != exitOK {
		t.Errorf("the same number: exit %d %s", exit, out)
	}
	if ks, err := r.grpc.Keyspaces().GetKeyspace(t.Context(), &leaseholdv1.GetKeyspaceRequest{Name: "orders"}); err != nil || ks.GetPartitions() != 64 {
		t.Errorf("now %d, %v", ks.GetPartitions(), err)
	}
}
