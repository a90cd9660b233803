package raftstore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// inMemoryDir puts a cluster's directories where a real sync costs nothing:
// what survives is the lossyFS's business.
func inMemoryDir(s *server, c *Config) {
	const shm = "/dev/shm"
	if info, err := os.Stat(shm); err != nil || !info.IsDir() || filepath.Dir(filepath.Dir(s.dir)) == shm {
		return
	}
	dir, err := os.MkdirTemp(shm, "leasehold-")
	if err != nil {
		return
	}
	s.c.t.Cleanup(func() { os.RemoveAll(dir) })
	s.dir = filepath.Join(dir, s.id)
	c.Dir = s.dir
}

// blackout is one experiment: writers, and power that goes off at random.
type blackout struct {
	t   *testing.T
	c   *cluster
	rng *rand.Rand

	mu    sync.Mutex
	acked []string
}

// write proposes from several goroutines at every server until ctx ends.
func (b *blackout) write(ctx context.Context, cut int) *sync.WaitGroup {
	var wg sync.WaitGroup
	for w := range 6 {
		wg.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				name := fmt.Sprintf("%d-%d-%d", cut, w, i)
				for _, s := range b.c.servers {
					rs, err := s.store.Propose(ctx, mark(name))
					if err == nil && rs[0].Err == nil {
						b.mu.Lock()
						b.acked = append(b.acked, name)
						b.mu.Unlock()
					}
				}
				time.Sleep(time.Millisecond)
			}
		})
	}
	return &wg
}

// cut takes the victims' power in the middle of writing or starting, brings it
// back and returns what is missing.
func (b *blackout) cut(n int, victims []*server) (missing []string) {
	ctx, cancel := context.WithCancel(b.t.Context())
	writers := b.write(ctx, n)
	pause := 60 * time.Millisecond
	if b.rng != nil {
		pause = time.Duration(b.rng.Int64N(int64(pause)))
	}
	time.Sleep(pause)
	for _, s := range victims {
		if b.rng == nil {
			s.vfs.tear(nil)
			continue
		}
		s.vfs.tear(rand.New(rand.NewPCG(b.rng.Uint64(), 0)))
	}
	for _, s := range victims {
		s.crash()
	}
	cancel()
	writers.Wait()
	for _, s := range victims {
		s.start()
	}
	b.c.leader().store.View(func(st *state.State) {
		for _, name := range b.acked {
			if !marked(st, name) {
				missing = append(missing, name)
			}
		}
	})
	return missing
}

// Power loss at 200 random moments, of what has not been synced: each sector of
// it may have reached the disk or not. Small segments bring many changes from
// one to the next. DESIGN, promise 7.
func TestPowerLossOfAllServersLosesNothingAcknowledged(t *testing.T) {
	const clusters, cuts = 10, 20
	seed := uint64(time.Now().UnixNano())
	acked, torn := 0, 0
	for i := range clusters {
		bubble(t, func(t *testing.T) {
			c := newCluster(t, 3, onDisk, inMemoryDir, smallSegments, lossy, func(s *server, c *Config) {
				slowSyncs(s, c, 2*time.Millisecond) // so that there are moments with writes that are not synced
				c.SnapshotThreshold, c.SnapshotInterval, c.TrailingLogs = 200, 50*time.Millisecond, 100
			})
			defer c.stopAll()
			b := &blackout{t: t, c: c, rng: rand.New(rand.NewPCG(seed, uint64(i)))}
			for n := range cuts {
				victims := c.servers
				if b.rng.IntN(4) == 0 {
					victims = victims[b.rng.IntN(len(victims)):][:1]
				}
				if b.rng.IntN(5) > 0 {
					c.leader() // else perhaps while they start
				}
				if missing := b.cut(n, victims); len(missing) > 0 {
					t.Fatalf("seed %d, cluster %d, cut %d: %d of %d acknowledged are gone: %v", seed, i, n, len(missing), len(b.acked), missing[:min(len(missing), 5)])
				}
			}
			acked += len(b.acked)
			for _, s := range c.servers {
				torn += s.torn
			}
			c.check()
		})
	}
	t.Logf("seed %d: %d cuts, %d writes torn by them, %d acknowledged, none is gone", seed, clusters*cuts, torn, acked)
	if acked < 5*clusters*cuts || torn < clusters*cuts/10 {
		t.Errorf("only %d were acknowledged and %d writes torn", acked, torn)
	}
}

// The same experiment with disks that lie must show it, or it shows nothing.
func TestPowerLossCheckerNoticesSkippedSyncs(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3, onDisk, lossy)
		defer c.stopAll()
		c.do(nudge())
		for _, s := range c.servers {
			s.vfs.mu.Lock()
			s.vfs.skip = true
			s.vfs.mu.Unlock()
		}
		b := &blackout{t: t, c: c}
		if missing := b.cut(0, c.servers); len(missing) == 0 {
			t.Errorf("none of %d acknowledged without a sync is gone", len(b.acked))
		}
	})
}
