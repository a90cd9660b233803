package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// decoders are all that read bytes of somebody who has not proven anything yet, or
// never has to, with the target that fuzzes each.
var decoders = []struct{ listener, bytes, pkg, target string }{
	{"gRPC", "the name in a certificate", "ownership/pki", "FuzzParseName"},
	{"gRPC", "frames, looked at for resets", "ownership/listen", "FuzzFrames"},
	{"gRPC", "frames, as the server takes them", "ownership/server", "FuzzHTTP2Frames"},
	{"gRPC", "authorization and token", "ownership/auth", "FuzzPresented"},
	{"gRPC", "name and password of etcd's clients", "ownership/auth", "FuzzPresented"},
	{"gRPC", "the token of a credential", "raftstore/access", "FuzzParseToken"},
	{"gRPC", "the identity that a server hands on", "raftstore/access", "FuzzDecode"},
	{"HTTP", "requests: console, JSON, Connect, etcd's gateway", "ownership/server", "FuzzHTTP"},
	{"HTTP", "the path and the Authorization header", "ownership/auth", "FuzzPresented"},
	{"Raft", "hello and welcome", "raftstore", "FuzzHello"},
	{"Raft", "requests after the hello", "raftstore", "FuzzInflow"},
	{"gossip", "packets and streams, with and without a key", "ring/gossip", "FuzzSockets"},
	{"gossip", "probe messages", "ring/gossip", "FuzzDecodeMessage"},
	{"gossip", "probe messages, through the delegate", "ring/gossip", "FuzzReceive"},
	{"gossip", "what members say of themselves", "ring/gossip", "FuzzDecodeMeta"},
	{"sidecar", "parameters", "cmd/leasehold/internal/sidecar", "FuzzParams"},
	{"user", "the stamp of a request, in HTTP", "ownership/fence/httpfence", "FuzzParseStamp"},
	{"user", "the stamp of a call, in gRPC", "ownership/fence/grpcfence", "FuzzParseStamp"},
}

// sockets has the packages that open any, with what listens there. One that
// is fuzzed nowhere has the reason behind a colon.
var sockets = map[string][]string{
	"ownership/server":               {"gRPC", "HTTP", "Raft", "admin: loopback alone, and net/http's own parser"},
	"raftstore":                      {"Raft"},
	"ring/gossip":                    {"gossip"},
	"cmd/leasehold":                  {"metrics of run and hold: net/http's own parser and promhttp", "config check: closed at once"},
	"cmd/leasehold/internal/sidecar": {"sidecar"},
	"cmd/leasehold/internal/cluster": {"ports that are free: closed at once"},
	"cmd/leasehold/internal/demo":    {"a port that is free: closed at once"},
	"ownership/internal/dbtest":      {"tests: a port that is free, closed at once"},
}

func TestEveryDecoderBeforeTheLoginIsFuzzed(t *testing.T) {
	fuzzed := map[string]bool{}
	for _, d := range decoders {
		fuzzed[d.listener] = true
		files, err := filepath.Glob(filepath.Join(root(t), d.pkg, "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		target := regexp.MustCompile(`(?m)^func ` + d.target + `\(f \*testing\.F\)`)
		if !slices.ContainsFunc(files, func(name string) bool {
			text, err := os.ReadFile(name)
			return err == nil && target.Match(text)
		}) {
			t.Errorf("%s (%s) should be fuzzed by %s in %s, which is not there", d.bytes, d.listener, d.target, d.pkg)
		}
	}
	for _, pkg := range slices.Sorted(maps.Keys(opensSockets(t))) {
		if len(sockets[pkg]) == 0 {
			t.Errorf("%s opens a socket: say in this table what reads from it, and which target fuzzes that", pkg)
		}
	}
	for pkg, names := range sockets {
		for _, name := range names {
			if _, why, ok := strings.Cut(name, ": "); (!ok || why == "") && !fuzzed[name] {
				t.Errorf("what %s reads at its listener %s is fuzzed by nothing", pkg, name)
			}
		}
	}
}

// opensSockets are the packages of this module whose code, not its tests, listens.
func opensSockets(t *testing.T) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	base := root(t)
	err := filepath.WalkDir(base, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(base, path)
		if d.IsDir() {
			_, err := os.Stat(filepath.Join(path, "go.mod"))
			if rel != "." && (err == nil || strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" || d.Name() == "examples") {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			if x, ok := sel.X.(*ast.Ident); ok && (x.Name == "net" || x.Name == "tls") && strings.HasPrefix(sel.Sel.Name, "Listen") && sel.Sel.Name != "Listener" ||
				sel.Sel.Name == "ListenAndServe" || sel.Sel.Name == "ListenAndServeTLS" || sel.Sel.Name == "NewNetTransport" {
				found[filepath.ToSlash(filepath.Dir(rel))] = true
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(found) < 4 {
		t.Fatalf("only %v open sockets: this test looks in the wrong place", found)
	}
	return found
}
