package browsertest

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/leasehold-dev/leasehold/metrics/mixin/live"
)

// dev is a server of its own in one process, with workers; it returns where its
// console and its API are.
func dev(t *testing.T, args ...string) (http, grpc string) {
	t.Helper()
	const free = "127.0.0.1:0"
	cmd := exec.Command(live.Binary(t), append([]string{"dev", "-o", "json", "--grpc-addr", free, "--raft-addr", free, "--gossip-addr", free, "--http-addr", free}, args...)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	})
	var said map[string]any
	if err := json.NewDecoder(out).Decode(&said); err != nil {
		t.Fatalf("what dev says: %v", err)
	}
	return fmt.Sprint(said["http_addr"]), fmt.Sprint(said["grpc_addr"])
}

// The map of 4,096 partitions goes on to move smoothly while a quarter or more of them
// change hands. What the machine can do at all is measured first, on an empty page.
// Since something else may have the processor meanwhile, one smooth try is enough.
func TestFourThousandCellsAreSmooth(t *testing.T) {
	browser(t)
	http, grpc := dev(t, "--workers", "4", "--partitions", "4096")
	var fault string
	for left := 4; left > 1; left-- {
		t.Run(fmt.Sprintf("%d workers", left), func(t *testing.T) { fault = rough(t, http, grpc, left) })
		if fault == "" {
			return
		}
		t.Log(fault)
	}
	t.Error(fault)
}

// rough drains one of the workers that are left and says what is not smooth meanwhile.
func rough(t *testing.T, http, grpc string, left int) string {
	empty := browser(t).Page(t, "about:blank").Frames(time.Second)
	p := open(t, http)
	p.Go("partitions")
	p.Await("all have owners, spread over the workers", fmt.Sprintf("store.partitions.n === 4096 && [...store.partitions.state].every(s => s === 1) && new Set(store.partitions.owner).size === %d && store.workers.every(w => w.draining || w.held > 512)", left))
	still := p.Frames(time.Second)
	id := fmt.Sprintf("dev-%d", 5-left)
	if out, err := exec.Command(live.Binary(t), "workers", "drain", id, "--yes", "--server", grpc).CombinedOutput(); err != nil {
		t.Fatalf("drain: %v\n%s", err, out)
	}
	moving := p.Frames(2 * time.Second)
	p.Await("they have moved", fmt.Sprintf("store.workers.find(w => w.id === %q).held < 512", id))
	p.Shot("partitions-4096")
	at := func(frames []float64, part float64) float64 { return frames[int(part*float64(len(frames)-1))] }
	for _, m := range []struct {
		what   string
		frames []float64
	}{{"an empty page", empty}, {"4,096 cells", still}, {"4,096 cells, moving", moving}} {
		t.Logf("frames of %s: %d, p50 %.1f ms, p95 %.1f ms, worst %.1f ms", m.what, len(m.frames), at(m.frames, 0.5), at(m.frames, 0.95), at(m.frames, 1))
	}
	if limit := 3*at(empty, 0.5) + 20; at(moving, 0.5) > limit {
		return fmt.Sprintf("half the frames take more than %.1f ms, and %.1f ms is three times an empty page's and a bit", at(moving, 0.5), limit)
	}
	return ""
}
