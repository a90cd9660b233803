package server

import (
	"errors"
	"io"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/bootclock"
	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
)

// What a server measures of itself is held against what this process, in which
// it runs, measures beside it.
func TestHealthIsMeasured(t *testing.T) {
	t.Parallel()
	c := quickCluster(t, 3)
	cl := c.client()
	for _, cfg := range c.configs {
		c.seen(cfg.ID)
	}
	for i := range 3 {
		conn, err := cl.Open(c.running[i].Addrs().GRPC) // just this server, not whoever leads
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		before, boot := time.Now(), bootclock.Boot().Now()
		h, err := leaseholdv1.NewClusterServiceClient(conn).GetHealth(t.Context(), &leaseholdv1.GetHealthRequest{})
		after := bootclock.Boot().Now()
		if err != nil {
			t.Fatal(err)
		}
		if h.GetServerId() != c.configs[i].ID || h.GetClusterId() == "" || h.GetMaxFeatureLevel() == 0 || h.GetBoot() == 0 || h.GetStoreId() == "" {
			t.Errorf("identity: %v", h)
		}
		if now := time.Duration(h.GetBootClockNs()); now < boot || now > after {
			t.Errorf("boot clock %v, want between %v and %v", now, boot, after)
		}
		if wall := h.GetWallClock().AsTime(); wall.Before(before.Add(-time.Millisecond)) || wall.After(time.Now()) {
			t.Errorf("wall clock %v", wall)
		}
		if h.GetElectionTimeoutMs() != c.configs[i].ElectionTimeout.Milliseconds() || h.GetLeaderChanges() == 0 || h.GetLogLastIndex() == 0 {
			t.Errorf("raft: %v", h)
		}
		seen := map[string]string{}
		for _, g := range h.GetGossip() {
			seen[g.GetRole()+" "+g.GetId()] = g.GetStatus()
		}
		for _, other := range []string{"server s1", "server s2", "server s3"} {
			if seen[other] != "alive" {
				t.Errorf("s%d sees %s %q", i+1, other, seen[other])
			}
		}
		if h.GetFsyncCount() == 0 || h.GetFsyncP50Ms() <= 0 || h.GetFsyncMaxMs() < h.GetFsyncP99Ms() || h.GetLogFirstIndex() != 1 || h.GetSnapshotAgeMs() != -1 || h.GetStoragePoisoned() {
			t.Errorf("storage: %v", h)
		}
		if h.GetGoroutines() == 0 || h.GetDataDir() != c.configs[i].DataDir {
			t.Errorf("process: %v", h)
		}
		if runtime.GOOS != "linux" {
			continue
		}
		if h.GetDiskSizeBytes() == 0 || h.GetDiskFreeBytes() > h.GetDiskSizeBytes() || h.GetDataBytes() == 0 {
			t.Errorf("disk: %d free of %d, %d in the data directory", h.GetDiskFreeBytes(), h.GetDiskSizeBytes(), h.GetDataBytes())
		}
		if h.GetResidentBytes() < 1<<20 || h.GetOpenFiles() < 10 || h.GetMaxOpenFiles() < h.GetOpenFiles() {
			t.Errorf("process: %d bytes, %d of %d files", h.GetResidentBytes(), h.GetOpenFiles(), h.GetMaxOpenFiles())
		}
	}
}

// A disk that hangs does not silence the server: it goes on with what it saw
// last, and one look hangs, not one per question.
func TestHealthWithAHangingDisk(t *testing.T) {
	type diskFigures struct{ free, size, data uint64 }
	var d diskLook[diskFigures]
	looks := 0
	look := func(figures diskFigures, err error) func() (diskFigures, error) {
		return func() (diskFigures, error) {
			looks++
			return figures, err
		}
	}
	if got := d.look(time.Minute, look(diskFigures{1, 2, 3}, nil)); got != (diskFigures{1, 2, 3}) {
		t.Fatalf("first look: %v", got)
	}
	if got := d.look(time.Minute, look(diskFigures{}, errors.New("gone"))); got != (diskFigures{1, 2, 3}) {
		t.Errorf("after a failed look: %v", got)
	}
	hang := make(chan struct{})
	hanging := func() (diskFigures, error) {
		<-hang
		return diskFigures{4, 5, 6}, nil
	}
	for range 3 {
		if got := d.look(time.Millisecond, hanging); got != (diskFigures{1, 2, 3}) {
			t.Errorf("while it hangs: %v", got)
		}
	}
	before := looks
	if got := d.look(time.Millisecond, look(diskFigures{9, 9, 9}, nil)); got != (diskFigures{1, 2, 3}) || looks != before {
		t.Errorf("a second look began while the first hangs: %v", got)
	}
	close(hang)
	if got := d.look(time.Minute, hanging); got != (diskFigures{4, 5, 6}) {
		t.Errorf("when it goes on: %v", got)
	}
}

// A debug archive of a server with a gossip key has neither the key nor what
// else was declared a secret, and has what the process alone knows.
func TestDebugArchiveOfAServerHasNoKey(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	cfg := &c.configs[0]
	cfg.GossipKey = []byte("0123456789abcdef0123456789abcdef")
	cfg.Secrets = []string{"env-secret-value"}
	cfg.RecentLog = func() []byte { return []byte(`{"msg":"started","x":"env-secret-value"}` + "\n") }
	c.startAll()
	stream, err := c.client().Cluster().CollectDebug(t.Context(), &leaseholdv1.CollectDebugRequest{})
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		files[m.GetName()] += string(m.GetData())
	}
	for name, text := range files {
		for _, secret := range []string{string(cfg.GossipKey), "env-secret-value"} {
			if strings.Contains(text, secret) {
				t.Errorf("%s has %q", name, secret)
			}
		}
	}
	for name, want := range map[string]string{
		"metrics.prom": "leasehold_raft_is_leader 1", "members.json": `"Status": "alive"`, "config.json": "32 bytes, not shown",
		"build.json": `"go"`, "log.jsonl": "started",
	} {
		if !strings.Contains(files[name], want) {
			t.Errorf("%s has no %q: %.300q", name, want, files[name])
		}
	}
}

// A setting that is a secret must not be shown by being forgotten: what is
// shown is listed by name.
func TestSettingsShowNoSecret(t *testing.T) {
	s := &Server{cfg: DefaultConfig()}
	s.cfg.GossipKey, s.cfg.Secrets = []byte("0123456789abcdef"), []string{"env-secret-value"}
	raw, err := indented(s.settings())
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{"0123456789abcdef", "env-secret-value"} {
		if strings.Contains(string(raw), secret) {
			t.Errorf("settings show %q", secret)
		}
	}
}
