//go:build linux

package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-dev/leasehold/cmd/leasehold/internal/cluster"
	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
)

// onHost runs a server as a container does that is given no id: on a host of
// this name, without --id.
func onHost(name string) []string {
	return []string{"unshare", "--uts", "sh", "-ec", `hostname "$1"; program=$2; shift 5; exec "$program" server "$@"`, "sh", name}
}

// O-52: a container without an explicit id is made anew on the same volume, and
// has another host name. It goes on as who it was; a second one on the volume is
// refused.
func TestOldVolumeOnANewHost(t *testing.T) {
	if out, err := exec.Command("unshare", "--uts", "hostname", "c1").CombinedOutput(); err != nil {
		if os.Getenv("LEASEHOLD_CI") == "1" {
			t.Fatalf("give a process a host name of its own: %v: %s", err, out)
		}
		t.Skipf("cannot give a process a host name of its own (it takes root and unshare): %v: %s", err, out)
	}
	var err error
	g := processGroup(t)
	v := &volumes{site: &site{t: t, dir: t.TempDir()}}
	spec := cluster.ServerSpec{ID: "volume", Wrap: onHost("c1"), Env: []string{asProgramEnv + "=1"}}
	if v.Cluster, err = cluster.StartServers(g, v.dir, []cluster.ServerSpec{spec}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { v.Close() })
	x := v.Servers()[0]
	v.ready(x)
	cli := &cli{env: map[string]string{"LEASEHOLD_SERVER": v.Addrs()}}
	cli.want(t, exitOK, "keyspace", "create", "orders", "--partitions", "4", "--ttl", "10s")
	before := v.status(x)
	if before.GetServerId() != "c1" {
		t.Fatalf("its id is %q, want that of its host", before.GetServerId())
	}

	second, err := g.Start(cluster.Spec{
		Name: "second", LogFile: v.dir + "/second.log", Wrap: onHost("c2"), Env: spec.Env,
		Args: []string{"server", "--id", "none", "--data-dir", v.data(x), "--grpc-addr", "127.0.0.1:0", "--raft-addr", "127.0.0.1:0",
			"--gossip-addr", "127.0.0.1:0", "--http-addr", "127.0.0.1:0", "--bootstrap-expect", "1"},
	})
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-second.Done():
	case <-time.After(time.Minute):
		t.Fatal("the second server on the volume goes on")
	}
	said, err := os.ReadFile(v.dir + "/second.log")
	if err != nil {
		t.Fatal(err)
	}
	if second.Err() == nil || !strings.Contains(string(said), v.data(x)) || !strings.Contains(string(said), "is in use by process") {
		t.Errorf("the second server on the volume ended with %v and says\n%s", second.Err(), said)
	}

	v.kill(x)
	x.Wrap = onHost("c2")
	if err := v.Start(x); err != nil {
		t.Fatal(err)
	}
	v.ready(x)
	after := v.status(x)
	if after.GetServerId() != "c1" || after.GetClusterId() != before.GetClusterId() || !hasKeyspace(after, "orders") {
		t.Errorf("on another host it is %s of %s, before it was %s of %s", after.GetServerId(), after.GetClusterId(), before.GetServerId(), before.GetClusterId())
	}
	peers, _ := cli.want(t, exitOK, "raft", "peers", "-o", "json")
	if strings.Contains(peers, "c2") {
		t.Errorf("there is another peer:\n%s", peers)
	}
}

func hasKeyspace(st *leaseholdv1.Status, name string) bool {
	for _, k := range st.GetKeyspaces() {
		if k.GetName() == name {
			return true
		}
	}
	return false
}
