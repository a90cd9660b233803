package main

import (
	"encoding/json"
	"errors"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/leasehold-dev/leasehold"

// allowed is the table of imports between our own packages, DESIGN §3: arrows
// only down. A package that is not here may not exist; a pair that is not
// here may not be imported.
var allowed = map[string][]string{
	"raftstore/mvcc":        {},
	"raftstore/access":      {},
	"raftstore/state":       {"raftstore/mvcc", "raftstore/access"},
	"ring":                  {},
	"ring/keyrange":         {},
	"metrics":               {},
	"deploy/prometheus":     {},
	"ownership/leaseholdv1": {},
	"ownership/leaseholdv1/leaseholdv1connect": {"ownership/leaseholdv1"},
	"ownership/bootclock":                      {},
	"ownership/listen":                         {},
	"ownership/fence":                          {},
	"ownership/fence/sqlfence":                 {"ownership/fence"},
	"ownership/fence/pgxfence":                 {"ownership/fence", "ownership/fence/sqlfence"},
	"ownership/fence/sqljob":                   {"ownership/fence", "ownership/fence/sqlfence"},
	"ownership/fence/sqlonce":                  {"ownership/fence", "ownership/fence/sqlfence"},
	"ownership/fence/redisfence":               {"ownership/fence"},
	"ownership/fence/httpfence":                {"ownership/fence"},
	"ownership/fence/grpcfence":                {"ownership/fence"},
	"ownership/fence/objectfence":              {"ownership/fence"},
	"ownership/fence/fencetest":                {"ownership/fence"},
	"ownership/internal/dbtest":                {},
	"ownership/router":                         {"ownership/client", "ownership/leaseholdv1", "ring/keyrange", "metrics"},
	"ownership/workertest":                     {"ownership/worker", "ownership/client", "ownership/leaseholdv1", "ownership/fence", "ownership/bootclock", "ring/keyrange"},
	"ownership/examples/internal/exampletest":  {},
	"ownership/examples/outbox":                {"ownership/worker", "ownership/fence", "ownership/fence/sqlfence", "ownership/fence/httpfence", "ring/keyrange"},
	"ownership/examples/cron":                  {"ownership/worker", "ownership/fence", "ownership/fence/sqlfence", "ownership/fence/sqlonce", "ring/keyrange"},
	"ownership/examples/actors":                {"ownership/worker", "ownership/router", "ownership/fence", "ownership/fence/sqlfence", "ownership/fence/httpfence"},
	"raftstore":                                {"raftstore/state", "raftstore/mvcc", "metrics"},
	"raftstore/backup":                         {"raftstore/state"},
	"ownership/audit":                          {"raftstore/state"},
	"ownership/auditlog":                       {"raftstore/access"},
	"raftstore/queue":                          {"raftstore", "raftstore/state", "raftstore/mvcc"},
	"raftstore/etcdapi":                        {"raftstore", "raftstore/access", "raftstore/state", "raftstore/mvcc", "raftstore/queue", "raftstore/backup", "raftstore/etcdapi/relaypb", "raftstore/etcdapi/v3lockpb", "raftstore/etcdapi/v3electionpb", "metrics"},
	"raftstore/etcdapi/relaypb":                {},
	"raftstore/etcdapi/v3lockpb":               {},
	"raftstore/etcdapi/v3electionpb":           {},
	"ring/gossip":                              {"metrics"},
	"ownership/auth":                           {"raftstore/access", "ownership/pki", "ownership/leaseholdv1", "metrics"},
	"ownership/controller":                     {"raftstore", "raftstore/state", "ring", "ring/gossip", "metrics"},
	"ownership/pki":                            {"raftstore/access"},
	"ownership/client":                         {"ownership/leaseholdv1", "raftstore/access"},
	"ownership/pki/pkitest":                    {"ownership/pki", "raftstore/access"},
	"ownership/api":                            {"ownership/controller", "ownership/auth", "raftstore", "raftstore/access", "raftstore/state", "raftstore/mvcc", "raftstore/queue", "raftstore/backup", "ring", "ring/keyrange", "ring/gossip", "metrics", "ownership/leaseholdv1", "ownership/leaseholdv1/leaseholdv1connect"},
	"ownership/console":                        {"ownership/api", "ownership/leaseholdv1", "ring/gossip"},
	"ownership/worker":                         {"ownership/client", "ownership/fence", "ownership/bootclock", "ring/keyrange", "ring/gossip", "metrics", "ownership/leaseholdv1"},
	"ownership/server":                         {"ownership/api", "ownership/listen", "ownership/pki", "raftstore/access", "ownership/audit", "ownership/auditlog", "ownership/auth", "ownership/console", "ownership/controller", "ownership/client", "ownership/bootclock", "ownership/leaseholdv1", "ownership/leaseholdv1/leaseholdv1connect", "raftstore", "raftstore/state", "raftstore/mvcc", "raftstore/etcdapi", "raftstore/queue", "ring", "ring/gossip", "metrics"},
	"cmd/leasehold":                            {"*"},
	"cmd/leasehold/internal/demo":              {"ownership/worker", "ownership/client", "ownership/fence", "ownership/fence/sqlfence", "ownership/bootclock", "ownership/leaseholdv1", "metrics", "deploy/prometheus", "cmd/leasehold/internal/cluster", "cmd/leasehold/internal/latency"},
	"cmd/leasehold/internal/attack":            {},
	"cmd/leasehold/internal/identity":          {"ownership/client", "ownership/pki"},
	"cmd/leasehold/internal/bench":             {"cmd/leasehold/internal/identity", "ownership/worker", "ownership/router", "ownership/client", "ownership/fence", "ownership/bootclock", "ownership/leaseholdv1", "metrics", "cmd/leasehold/internal/cluster", "cmd/leasehold/internal/latency"},
	"cmd/leasehold/internal/chaos":             {"ownership/leaseholdv1", "cmd/leasehold/internal/cluster", "cmd/leasehold/internal/demo", "cmd/leasehold/internal/faults", "cmd/leasehold/internal/latency"},
	"cmd/leasehold/internal/cluster":           {"ownership/client", "ownership/leaseholdv1", "ownership/bootclock", "ownership/pki", "raftstore/access"},
	"cmd/leasehold/internal/faults":            {"ownership/bootclock", "raftstore"},
	"cmd/leasehold/internal/latency":           {},
	"cmd/leasehold/internal/systemd":           {},
	"cmd/leasehold/internal/doctor":            {"ownership/client", "ownership/leaseholdv1"},
	"cmd/leasehold/internal/session":           {"ownership/bootclock"},
	"cmd/leasehold/internal/sidecar":           {"ownership/worker", "ownership/fence", "ownership/bootclock"},
}

// overGRPC is what a gRPC client brings.
var overGRPC = []string{
	"google.golang.org/grpc", "google.golang.org/protobuf", "google.golang.org/genproto/googleapis/rpc",
	"golang.org/x/net", "golang.org/x/sys", "golang.org/x/text",
}

// ofWorker is what the worker library brings.
var ofWorker = slices.Concat(overGRPC, []string{
	"github.com/cespare/xxhash/v2",
	// membership
	"github.com/hashicorp/memberlist", "github.com/hashicorp/go-metrics", "github.com/hashicorp/go-immutable-radix", "github.com/hashicorp/golang-lru",
	"github.com/hashicorp/go-multierror", "github.com/hashicorp/errwrap", "github.com/hashicorp/go-sockaddr", "github.com/hashicorp/go-msgpack/v2",
	"github.com/google/btree", "github.com/miekg/dns", "github.com/sean-/seed",
	// the collector
	"github.com/prometheus/client_golang", "github.com/prometheus/client_model", "github.com/prometheus/common", "github.com/prometheus/procfs", "github.com/beorn7/perks",
	"github.com/munnerz/goautoneg", "go.yaml.in/yaml/v2",
})

// linked is what users compile into their own programs, with the third-party
// modules each may bring. None of them may reach Raft; raftstore/access is no part of it.
var linked = map[string][]string{
	"ownership/fence":             {},
	"ownership/fence/sqlfence":    {},
	"ownership/fence/sqljob":      {},
	"ownership/fence/sqlonce":     {},
	"ownership/fence/httpfence":   {},
	"ownership/fence/objectfence": {},
	"ownership/fence/fencetest":   {},
	"ownership/fence/pgxfence":    {"github.com/jackc/pgx/v5", "github.com/jackc/pgpassfile", "github.com/jackc/pgservicefile", "github.com/jackc/puddle/v2", "golang.org/x/sync", "golang.org/x/text"},
	"ownership/fence/redisfence":  {"github.com/redis/go-redis/v9", "github.com/cespare/xxhash/v2", "go.uber.org/atomic", "golang.org/x/sys"},
	"ownership/fence/grpcfence":   overGRPC,
	"ownership/client":            overGRPC,
	"ownership/router":            append(slices.Clone(overGRPC), "github.com/cespare/xxhash/v2"),
	"ownership/worker":            ofWorker,
	"ownership/workertest":        ofWorker,
}

// pure packages use no clock, goroutine, socket, logger or random number.
var pure = []string{"raftstore/access", "raftstore/state", "raftstore/mvcc", "ring", "ring/keyrange", "ownership/fence", "ownership/audit"}

var impure = []string{"net", "net/http", "os", "os/exec", "math/rand", "math/rand/v2", "crypto/rand", "log", "log/slog", "sync/atomic"}

type goPackage struct {
	ImportPath string
	Dir        string
	GoFiles    []string
	Imports    []string
	Standard   bool
	Module     *struct{ Path string }
	Deps       []string
}

func list(t *testing.T, args ...string) []goPackage {
	t.Helper()
	cmd := exec.Command("go", append([]string{"list", "-json=ImportPath,Dir,GoFiles,Imports,Standard,Module,Deps"}, args...)...)
	cmd.Dir = root(t)
	out, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			t.Fatalf("go list %v: %s", args, exit.Stderr)
		}
		t.Fatal(err)
	}
	var pkgs []goPackage
	dec := json.NewDecoder(strings.NewReader(string(out)))
	for {
		var p goPackage
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return pkgs
		} else if err != nil {
			t.Fatal(err)
		}
		pkgs = append(pkgs, p)
	}
}

func root(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestImportsPointDown(t *testing.T) {
	for _, p := range list(t, "./cmd/...", "./ownership/...", "./raftstore/...", "./ring/...", "./metrics/...", "./deploy/...") {
		name := strings.TrimPrefix(p.ImportPath, module+"/")
		may, known := allowed[name]
		if !known {
			t.Errorf("package %s is not in the import table: add it, on its floor", name)
			continue
		}
		for _, imp := range p.Imports {
			own, ok := strings.CutPrefix(imp, module+"/")
			if ok && !slices.Contains(may, "*") && !slices.Contains(may, own) {
				t.Errorf("%s imports %s, which its row of the table does not allow", name, own)
			}
		}
	}
}

func TestPurePackagesStayPure(t *testing.T) {
	for _, name := range pure {
		for _, p := range list(t, "./"+name) {
			for _, imp := range p.Imports {
				if slices.Contains(impure, imp) {
					t.Errorf("%s is pure and imports %s", name, imp)
				}
			}
			for _, f := range p.GoFiles {
				src, err := os.ReadFile(filepath.Join(p.Dir, f))
				if err != nil {
					t.Fatal(err)
				}
				for line := range strings.Lines(string(src)) {
					if strings.HasPrefix(strings.TrimSpace(line), "//") {
						continue
					}
					for _, bad := range []string{"time.Now(", "time.Since(", "go func", "time.After(", "time.NewTimer("} {
						if strings.Contains(line, bad) {
							t.Errorf("%s/%s is pure and has %q", name, f, bad)
						}
					}
				}
			}
		}
	}
}

func TestLinkedPackagesBringNoRaft(t *testing.T) {
	for name, may := range linked {
		p := list(t, "./"+name)[0]
		for _, dep := range p.Deps {
			if strings.HasPrefix(dep, module+"/raftstore") && dep != module+"/raftstore/access" {
				t.Errorf("%s compiles in %s", name, dep)
			}
		}
		for _, d := range list(t, "-deps", "./"+name) {
			if d.Module == nil || d.Module.Path == module {
				continue
			}
			if !slices.Contains(may, d.Module.Path) {
				t.Errorf("%s compiles in %s (through %s), which users of it do not expect", name, d.Module.Path, d.ImportPath)
			}
		}
	}
}

func TestEveryPackageHasAComment(t *testing.T) {
	for _, p := range list(t, "./...") {
		found := false
		for _, f := range p.GoFiles {
			file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, f), nil, parser.PackageClauseOnly|parser.ParseComments)
			if err != nil {
				t.Fatal(err)
			}
			if file.Doc != nil && len(file.Doc.Text()) > 60 {
				found = true
			}
		}
		if !found && len(p.GoFiles) > 0 && !strings.HasSuffix(p.ImportPath, "/leaseholdv1connect") && !strings.HasSuffix(p.ImportPath, "/warm") {
			t.Errorf("%s has no package comment: say what it is for, what it promises and what not", p.ImportPath)
		}
	}
}
