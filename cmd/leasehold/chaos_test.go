package main

import (
	"flag"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-dev/leasehold/cmd/leasehold/internal/chaos"
	"github.com/leasehold-dev/leasehold/cmd/leasehold/internal/demo"
)

var (
	chaosSeed     = flag.Int64("chaos.seed", 0, "decides who is hit by what; 0 draws one")
	chaosDuration = flag.Duration("chaos.duration", time.Minute, "how long there is trouble; env LEASEHOLD_CHAOS is used if it is set")
	chaosRecheck  = flag.String("chaos.recheck", "", "judge again the run that is kept in this `directory`")
)

// buildChaosBinary builds the binary with the faults that the released one
// does not have.
func buildChaosBinary(t *testing.T) string {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "leasehold")
	if out, err := exec.Command("go", "build", "-tags", "chaos", "-o", bin, ".").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	return bin
}

// ownNetwork makes a network that can be cut; nil where that is not possible,
// which in CI it must be.
func ownNetwork(t *testing.T) *chaos.Network {
	t.Helper()
	n, err := chaos.OpenNetwork()
	if err != nil {
		if os.Getenv("LEASEHOLD_CI") == "1" {
			t.Fatal(err)
		}
		t.Logf("nobody is cut off in this run: %v", err)
		return nil
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	return n
}

// runChaos makes trouble and returns the verdict. What a run leaves is kept
// unless it was good.
func runChaos(t *testing.T, cfg chaos.Config) chaos.Verdict {
	t.Helper()
	dir, err := os.MkdirTemp("", "leasehold-chaos-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(chaos.Keep(dir))
		} else if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	story, err := os.Create(filepath.Join(dir, "story.txt"))
	if err != nil {
		t.Fatal(err)
	}
	defer story.Close()
	cfg.Dir, cfg.Log = dir, story
	if testing.Verbose() {
		cfg.Log = io.MultiWriter(story, t.Output())
	}
	v, err := chaos.Run(t.Context(), cfg)
	if err != nil {
		t.Fatalf("no verdict: %v", err)
	}
	v.Print(t.Output())
	return v
}

// trouble is how long, by flag or environment.
func trouble(t *testing.T) time.Duration {
	t.Helper()
	if v := os.Getenv("LEASEHOLD_CHAOS"); v != "" {
		d, err := time.ParseDuration(v)
		if err != nil {
			t.Fatalf("LEASEHOLD_CHAOS %q: want a duration, for example 10m", v)
		}
		return d
	}
	return *chaosDuration
}

// The whole system on real processes: whatever is killed, stopped, cut off,
// slowed down or replaced, the promises of DESIGN §2 hold. A minute of it
// belongs to every test run; `make chaos` makes ten.
func TestChaos(t *testing.T) {
	seed := *chaosSeed
	if seed == 0 {
		seed = rand.Int64N(1 << 30)
	}
	took := trouble(t)
	t.Logf("seed %d: the same plan again with -chaos.seed %d", seed, seed)
	modes := map[demo.Mode]time.Duration{demo.Strict: took}
	if took >= 5*time.Minute {
		modes = map[demo.Mode]time.Duration{demo.Strict: took * 3 / 5, demo.Fenced: took * 2 / 5}
	}
	bin := buildChaosBinary(t)
	for mode, took := range modes {
		t.Run(string(mode), func(t *testing.T) {
			v := runChaos(t, chaos.Config{
				Executable: bin, Network: ownNetwork(t), Mode: mode, Seed: seed, Duration: took, Workers: 5, Partitions: 24,
			})
			if !v.OK() {
				t.Errorf("%d promises are broken", len(v.Problems))
			}
		})
	}
}

// The check of the check: without the guard a stopped worker's write goes
// through, and the same verdict must say so.
func TestChaosWithoutGuardIsDamaged(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	v := runChaos(t, chaos.Config{
		Executable: self, Env: asProgram, Mode: demo.Fenced, Seed: 1, NoGuard: true, Workers: 3, Partitions: 9,
		Plan: []chaos.Step{{Fault: chaos.StopWorker}, {Fault: chaos.StopWorker, Pick: 1}},
	})
	problems := strings.Join(v.Problems, "\n")
	for _, want := range []string{"written twice", "below an accepted token", "no stale write was rejected"} {
		if !strings.Contains(problems, want) {
			t.Errorf("the verdict does not say %q:\n%s", want, problems)
		}
	}
}

func TestChaosRecheck(t *testing.T) {
	if *chaosRecheck == "" {
		t.Skip("no -chaos.recheck directory is given")
	}
	v, err := chaos.Recheck(t.Context(), *chaosRecheck)
	if err != nil {
		t.Fatal(err)
	}
	v.Print(t.Output())
	if !v.OK() {
		t.Errorf("%d promises are broken", len(v.Problems))
	}
}
