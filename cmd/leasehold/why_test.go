package main

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"google.golang.org/protobuf/encoding/protojson"
)

// newOrders is a server with three workers that hold orders between them.
func newOrders(t *testing.T) (addr string) {
	t.Helper()
	p := startProgram(t, append([]string{"dev", "--keyspace", "orders", "--partitions", "12", "--workers", "3", "-o", "json"}, freePorts...)...)
	addr = devAddr(t, p)
	eventuallySays(t, addr, `"unowned": "0"`, "keyspace", "show", "orders", "-o", "json")
	// The first to come had all of it.
	waitFor(t, "a share for each worker", func() bool {
		c := &cli{env: map[string]string{"LEASEHOLD_SERVER": addr}}
		var list struct {
			Items []struct{ Held, Running string }
		}
		if c.run(t, "workers", "ls", "-o", "json") != exitOK || json.Unmarshal([]byte(c.stdout.String()), &list) != nil {
			return false
		}
		for _, w := range list.Items {
			if w.Held != w.Running || w.Held == "0" {
				return false
			}
		}
		return len(list.Items) == 3
	})
	eventuallySays(t, addr, `"draining": "0"`, "keyspace", "show", "orders", "-o", "json")
	return addr
}

// eventuallySays runs a command until it says something.
func eventuallySays(t *testing.T, addr, want string, args ...string) string {
	t.Helper()
	var out string
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	err := poll(ctx, 50*time.Millisecond, func() (bool, error) {
		c := &cli{env: map[string]string{"LEASEHOLD_SERVER": addr}}
		c.run(t, args...)
		out = c.stdout.String()
		return strings.Contains(out, want), nil
	})
	if err != nil {
		t.Fatalf("%v: never says %q, last\n%s", args, want, out)
	}
	return out
}

// The page's commands run as they are printed, on the cluster that it names.
func TestWhyAsThePageShowsIt(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile(filepath.Join(root(t), "deploy/OPERATIONS.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, ok := strings.Cut(string(b), "\n## Why did it move?\n")
	_, block, ok2 := strings.Cut(section, "```\n")
	block, table, ok3 := strings.Cut(block, "```")
	if !ok || !ok2 || !ok3 || strings.Count(block, "leasehold ") < 5 {
		t.Fatalf("the section has no block of commands: %q", block)
	}
	addr := newOrders(t)
	g := &ground{t: t, dir: t.TempDir()}
	program := filepath.Join(g.dir, "bin", "leasehold")
	g.program(program)
	cmd := exec.Command("sh", "-e", "-c", block)
	cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(program)+":"+os.Getenv("PATH"), "LEASEHOLD_SERVER="+addr)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range []string{"owner_", "moved: ", "WHO COULD HAVE IT", "WHAT HAPPENED", "grant", "no events", "PLACED", "nothing has been changed", "dev-2"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("nothing says %q:\n%s", want, out)
		}
	}
	for _, code := range []string{"owner_kept", "quarantined", "ttl_runs", "restored"} {
		if !strings.Contains(table, "`"+code+"`") {
			t.Errorf("the page does not explain %s", code)
		}
	}
}

// What a shell sees of a real cluster: both ways to name a partition, JSON that is
// the API's, the words of the tab key, and refusals with a next step.
func TestWhyOnARealServer(t *testing.T) {
	t.Parallel()
	addr := newOrders(t)
	ask := func(code int, args ...string) (string, string) {
		t.Helper()
		return (&cli{env: map[string]string{"LEASEHOLD_SERVER": addr}}).want(t, code, args...)
	}
	one, _ := ask(exitOK, "partitions", "show", "orders/7", "--why", "-o", "json")
	two, _ := ask(exitOK, "partitions", "show", "orders", "7", "--why", "-o", "json")
	var x, y leaseholdv1.Explanation
	if err := protojson.Unmarshal([]byte(one), &x); err != nil {
		t.Fatal(err)
	}
	if err := protojson.Unmarshal([]byte(two), &y); err != nil {
		t.Fatal(err)
	}
	if x.GetPartition().GetPartition() != 7 || y.GetPartition().GetToken() != x.GetPartition().GetToken() || len(x.GetCandidates()) != 3 || len(x.GetHistory()) == 0 {
		t.Errorf("%s\nand\n%s", one, two)
	}
	simulate := func() (out, before, after string) {
		before, _ = ask(exitOK, "events", "-o", "json")
		out, _ = ask(exitOK, "ring", "simulate", "orders", "--add", "w9:2", "--remove", "dev-1", "-o", "json")
		after, _ = ask(exitOK, "events", "-o", "json")
		return out, before, after
	}
	out, before, after := simulate()
	for tries := 0; after != before && tries < 10; tries++ { // the load may just have been spread
		out, before, after = simulate()
	}
	if after != before {
		t.Errorf("the simulation has left events:\n%s\nbefore\n%s", after, before)
	}
	var m leaseholdv1.Simulation
	if err := protojson.Unmarshal([]byte(out), &m); err != nil {
		t.Fatal(err)
	}
	if m.GetKept()+int64(len(m.GetMoves())) != 12 || len(m.GetMoves()) == 0 || len(m.GetAfter()) != 3 {
		t.Errorf("%s", out)
	}
	out, _ = ask(exitOK, "ring", "show", "orders", "--points", "-o", "json")
	var r struct {
		Points    []any
		Placement []int
		Members   []struct{ Worker string }
	}
	if err := json.Unmarshal([]byte(out), &r); err != nil || len(r.Points) != 60 || len(r.Placement) != 12 || len(r.Members) != 3 {
		t.Errorf("%v\n%s", err, out)
	}
	both, _ := ask(exitOK, "events", "--partition", "orders/7", "-o", "json")
	apart, _ := ask(exitOK, "events", "--partition", "7", "--keyspace", "orders", "-o", "json")
	if both != apart || !strings.Contains(both, `"partition": 7`) || strings.Contains(both, `"partition": 8`) {
		t.Errorf("%s\nand\n%s", both, apart)
	}
	for _, c := range []struct {
		code int
		says string
		args []string
	}{
		{exitUsage, "write orders/17 or orders 17", []string{"partitions", "show", "orders"}},
		{exitUsage, "one argument too many", []string{"partitions", "show", "orders/1", "2"}},
		{exitUsage, "want a number", []string{"partitions", "move", "orders/x", "--to", "dev-1"}},
		{exitNotFound, "0 to 11", []string{"partitions", "show", "orders/12", "--why"}},
		{exitUsage, "needs its keyspace", []string{"events", "--partition", "7"}},
		{exitUsage, "write orders/7", []string{"events", "--partition", "/7"}},
		{exitUsage, "is not of --keyspace", []string{"events", "--partition", "orders/7", "--keyspace", "mails"}},
		{exitUsage, "want one of initial", []string{"events", "--cause", "expird"}},
		{exitUsage, "needs -o json", []string{"ring", "show", "orders", "--points"}},
		{exitUsage, "4294967295", []string{"ring", "simulate", "orders", "--add", "w9:4294967296"}},
		{exitNotFound, "no such worker of keyspace orders", []string{"ring", "simulate", "orders", "--remove", "w9"}},
		{exitRefused, "is in keyspace orders already", []string{"ring", "simulate", "orders", "--add", "dev-1"}},
	} {
		if _, errOut := ask(c.code, c.args...); !strings.Contains(errOut, c.says) {
			t.Errorf("%v: %s", c.args, errOut)
		}
	}
	for _, c := range []struct {
		want []string
		args []string
	}{
		{[]string{"orders/1", "orders/10", "orders/11"}, []string{"partitions", "show", "orders/1"}},
		{[]string{"orders"}, []string{"partitions", "show", ""}},
		{[]string{"1", "10", "11"}, []string{"partitions", "move", "orders", "1"}},
		{[]string{"orders/0"}, []string{"events", "--partition", "orders/0"}},
		{[]string{"dev-1", "dev-2", "dev-3"}, []string{"ring", "simulate", "orders", "--remove", ""}},
		{[]string{"orders"}, []string{"ring", "show", ""}},
	} {
		completion(t, addr, func(offers []string) bool {
			got := strings.Fields(strings.TrimSuffix(strings.TrimSpace(strings.Join(offers, "\n")), ":4"))
			return slices.Equal(got, c.want)
		}, c.args...)
	}
	if out, _ := ask(exitOK, "__complete", "events", "--cause", ""); !strings.Contains(out, "\nexpired\n") || !strings.Contains(out, "\nretry\n") {
		t.Errorf("causes: %s", out)
	}
}

func TestSimulatedWorkerIsRead(t *testing.T) {
	for in, want := range map[string]*leaseholdv1.SimulatedWorker{
		"w9": {Id: "w9"}, "w9:50": {Id: "w9", Capacity: 50}, "host:7400:0": {Id: "host:7400"}, "host:a": {Id: "host:a"}, "w9:": {Id: "w9:"},
	} {
		if w, err := simulatedWorker(in); err != nil || w.GetId() != want.GetId() || w.GetCapacity() != want.GetCapacity() {
			t.Errorf("%s: %v, %v", in, w, err)
		}
	}
}
