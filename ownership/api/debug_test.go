package api

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"

	"google.golang.org/grpc"

	pb "github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
)

// collect reads a whole collection into files.
func collect(stream grpc.ServerStreamingClient[pb.CollectDebugResponse]) (map[string]string, error) {
	files := map[string]string{}
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return files, nil
		}
		if err != nil {
			return files, err
		}
		files[m.GetName()] += string(m.GetData())
	}
}

func TestDebugArchiveHasNoSecrets(t *testing.T) {
	const secret = "correct-horse-battery"
	big := strings.Repeat("0123456789abcdef", 3*debugChunk/16) // more than one message
	c := startCluster(t, 1, func(cfg *Config) {
		cfg.Secrets = []string{secret}
		cfg.DebugFiles = []DebugFile{
			{Name: "log.jsonl", Late: true, Read: func(context.Context) ([]byte, error) {
				return []byte(`{"msg":"dialled http://u:` + secret + `@h/","client_secret":"hidden-too"}`), nil
			}},
			{Name: "big.txt", Read: func(context.Context) ([]byte, error) { return []byte(big), nil }},
			{Name: "broken.txt", Read: func(context.Context) ([]byte, error) { return nil, errors.New("no such " + secret) }},
		}
	})
	conn := c.leader(t).dial(t)
	createKeyspace(t, conn, "orders", 4)
	open := openRequest(11, "w1", "orders")
	open.GetOpen().Labels = map[string]string{"password": "hunter2", "token": "tok-tok", "zone": "kept"}
	open.GetOpen().Endpoint = "http://app:pa55word@10.0.0.1:9000"
	p := dialWorker(t, conn, open)
	p.holds(4)

	stream, err := pb.NewClusterServiceClient(conn).CollectDebug(t.Context(), &pb.CollectDebugRequest{DurationMs: 50, Profile: true})
	if err != nil {
		t.Fatal(err)
	}
	files, err := collect(stream)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		for _, s := range []string{secret, "hunter2", "tok-tok", "pa55word", "hidden-too"} {
			if strings.Contains(text, s) {
				t.Errorf("%s has %q", name, s)
			}
		}
	}
	for name, want := range map[string]string{
		"status.json": `"leader_id"`, "health.json": `"boot_clock_ns"`, "peers.json": `"s1"`, "keyspaces.json": `"orders"`,
		"workers.json": "kept", "partitions.json": `"w1": 4`, "events.json": `"grant"`, "goroutines.txt": "collectDebug",
		"log.jsonl": "dialled", "end/log.jsonl": "dialled", "end/status.json": "leader_id", "end/goroutines.txt": "goroutine",
		"heap.pprof": "", "cpu.pprof": "", "big.txt": big,
	} {
		if text, ok := files[name]; !ok || !strings.Contains(text, want) {
			t.Errorf("%s: there %v, want %.40q in it, %.200q", name, ok, want, text)
		}
	}
	var report DebugReport
	if err := json.Unmarshal([]byte(files[DebugReportName]), &report); err != nil {
		t.Fatal(err)
	}
	sent := map[string]DebugEntry{}
	for _, f := range report.Files {
		sent[f.Name] = f
	}
	if sent["log.jsonl"].Redacted < 2 || sent["workers.json"].Redacted == 0 || len(sent) != len(files)-1 {
		t.Errorf("report = %+v", report)
	}
	if len(report.Failed) != 1 || report.Failed[0].Name != "broken.txt" || strings.Contains(report.Failed[0].Error, secret) {
		t.Errorf("failed = %+v", report.Failed)
	}
}

// What was sent before a collection is broken off is whole, and the next one
// may begin; while it runs, a second one is refused.
func TestDebugCollectionBrokenOff(t *testing.T) {
	c := startCluster(t, 1)
	cl := pb.NewClusterServiceClient(c.leader(t).dial(t))
	ctx, cancel := context.WithCancel(t.Context())
	first, err := cl.CollectDebug(ctx, &pb.CollectDebugRequest{DurationMs: 600_000})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for got[goroutinesName] == "" {
		m, err := first.Recv()
		if err != nil {
			t.Fatal(err)
		}
		got[m.GetName()] += string(m.GetData())
	}
	second, err := cl.CollectDebug(t.Context(), &pb.CollectDebugRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := collect(second); pb.ReasonOf(err) != pb.ReasonConflict {
		t.Errorf("a second collection at a time: %v", err)
	}
	cancel()
	if !strings.Contains(got["status.json"], "leader_id") {
		t.Errorf("files before the end: %v", got)
	}
	eventually(t, "another collection", func() bool {
		s, err := cl.CollectDebug(t.Context(), &pb.CollectDebugRequest{})
		if err != nil {
			t.Fatal(err)
		}
		files, err := collect(s)
		return err == nil && files[DebugReportName] != ""
	})
	if _, err := collect(must(cl.CollectDebug(t.Context(), &pb.CollectDebugRequest{DurationMs: 600_001}))); pb.ReasonOf(err) != pb.ReasonInvalid {
		t.Errorf("eleven minutes: %v", err)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
