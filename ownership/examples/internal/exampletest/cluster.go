package exampletest

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Cluster is a `leasehold dev` with one keyspace.
type Cluster struct {
	Server   string // its gRPC address, what --servers wants
	Keyspace string

	t          testing.TB
	bin        string
	partitions int
}

// StartCluster starts a cluster with a keyspace of that many partitions. More
// flags of `leasehold dev` may follow, such as --takeover fenced.
func StartCluster(t testing.TB, keyspace string, partitions int, ttl time.Duration, flags ...string) *Cluster {
	t.Helper()
	bin := Build(t, "cmd/leasehold")
	p := Start(t, "leasehold dev", bin, append([]string{"dev", "-o", "json",
		"--keyspace", keyspace, "--partitions", strconv.Itoa(partitions), "--ttl", ttl.String(),
		"--grpc-addr", "127.0.0.1:0", "--raft-addr", "127.0.0.1:0", "--gossip-addr", "127.0.0.1:0", "--http-addr", "127.0.0.1:0",
	}, flags...)...)
	var banner struct {
		GRPCAddr string `json:"grpc_addr"`
	}
	Eventually(t, 30*time.Second, "leasehold dev is ready", func() bool {
		return json.NewDecoder(strings.NewReader(p.Output())).Decode(&banner) == nil
	})
	return &Cluster{Server: banner.GRPCAddr, Keyspace: keyspace, t: t, bin: bin, partitions: partitions}
}

// Run runs a command of the CLI and returns what it printed.
func (c *Cluster) Run(args ...string) string {
	c.t.Helper()
	var stderr bytes.Buffer
	cmd := exec.Command(c.bin, append([]string{"--server", c.Server}, args...)...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		c.t.Fatalf("leasehold %s: %v\n%s", strings.Join(args, " "), err, stderr.String())
	}
	return string(out)
}

// Owners tells the owner of each partition; "" is nobody.
func (c *Cluster) Owners() map[uint32]string {
	c.t.Helper()
	var list struct {
		Items []struct {
			Partition uint32 `json:"partition"`
			Owner     string `json:"owner"`
		} `json:"items"`
	}
	out := c.Run("partitions", "ls", c.Keyspace, "-o", "json")
	if err := json.Unmarshal([]byte(out), &list); err != nil {
		c.t.Fatalf("partitions ls: %v\n%s", err, out)
	}
	owners := make(map[uint32]string, len(list.Items))
	for _, i := range list.Items {
		owners[i.Partition] = i.Owner
	}
	return owners
}

// AwaitOwner waits until a partition belongs to a worker.
func (c *Cluster) AwaitOwner(partition uint32, worker string) {
	c.t.Helper()
	Eventually(c.t, 20*time.Second, "partition "+strconv.Itoa(int(partition))+" belongs to "+worker, func() bool {
		return c.Owners()[partition] == worker
	})
}

// AwaitWorkers waits until that many workers are members.
func (c *Cluster) AwaitWorkers(n int) {
	c.t.Helper()
	Eventually(c.t, 20*time.Second, strconv.Itoa(n)+" workers are members", func() bool {
		var list struct {
			Items []json.RawMessage `json:"items"`
		}
		out := c.Run("workers", "ls", "-o", "json")
		return json.Unmarshal([]byte(out), &list) == nil && len(list.Items) == n
	})
}

// Forgive forgets the failures of all partitions, as an operator does who knows
// why the workers died. A test that kills many has to: partitions that are
// there whenever a worker dies are suspects, and are granted one at a time.
func (c *Cluster) Forgive() {
	c.t.Helper()
	for p := range c.partitions {
		c.Run("partitions", "retry", c.Keyspace, strconv.Itoa(p))
	}
}
