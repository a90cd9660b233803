package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/leasehold-dev/leasehold/cmd/leasehold/internal/cluster"
	"github.com/leasehold-dev/leasehold/cmd/leasehold/internal/latency"
	"github.com/leasehold-dev/leasehold/ownership/bootclock"
)

// TakeoverConfig sizes `bench takeover`.
type TakeoverConfig struct {
	Kills      int
	Workers    int // processes alive at a time
	Partitions uint32
	Strict     bool
}

// OperationsResult is a rate and a distribution.
type OperationsResult struct {
	Bench        string  `json:"bench"`
	Mode         string  `json:"mode"` // takeover of the keyspace
	Count        int     `json:"count"`
	OpsPerSecond float64 `json:"ops_per_second"`
	P50          float64 `json:"p50_ms"`
	P99          float64 `json:"p99_ms"`
	Max          float64 `json:"max_ms"`
	Kills        int     `json:"kills,omitempty"`
}

func operations(name string, strict bool, took []time.Duration, all time.Duration) OperationsResult {
	s := latency.Summarise(took)
	r := OperationsResult{Bench: name, Mode: "fenced", Count: len(took), P50: s.P50, P99: s.P99, Max: s.Max}
	if strict {
		r.Mode = "strict"
	}
	if all > 0 {
		r.OpsPerSecond = float64(int(float64(len(took))/all.Seconds()*100)) / 100
	}
	return r
}

// TakeoverTimes measures, for each partition of each worker process that is
// killed, the time from the signal until a handler runs in another process.
// For each that is killed a new one takes its place, under another id.
func TakeoverTimes(ctx context.Context, cfg Config, t TakeoverConfig) (result OperationsResult, err error) {
	b, err := lay(ctx, cfg)
	if err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	space := b.name("takeover")
	if err := b.create(ctx, space, t.Partitions, shortTTL, Takeover(t.Strict), time.Second); err != nil {
		return result, err
	}
	f := newFleet(b, t.Partitions)
	worker := workerConfig{Keyspace: space, Measured: space, Gossip: true}
	alive, err := f.spread(b.ids(t.Workers), t.Workers, worker)
	if err != nil {
		return result, err
	}
	if err := f.waitOwned(ctx); err != nil {
		return result, err
	}
	var took []time.Duration
	began := time.Now()
	for kill := range t.Kills {
		victim := alive[0]
		worker.Workers = []string{b.id(t.Workers + kill + 1)}
		next, err := f.start(worker)
		if err != nil {
			return result, err
		}
		alive = append(alive[1:], next)
		if err := f.waitOpen(ctx, worker.Workers); err != nil {
			return result, err
		}
		samples, err := f.kill(ctx, victim)
		if err != nil {
			return result, fmt.Errorf("kill %d: %w", kill+1, err)
		}
		took = append(took, samples...)
		b.cfg.Progress("kill %d of %d: %d partitions run elsewhere, the last after %.0f ms", kill+1, t.Kills, len(samples), latency.Summarise(samples).Max)
	}
	result = operations("takeover", t.Strict, took, time.Since(began))
	result.Kills = t.Kills
	return result, nil
}

// kill ends a process and waits until everything it ran runs elsewhere.
func (f *fleet) kill(ctx context.Context, victim *cluster.Process) ([]time.Duration, error) {
	before := f.owners()
	at := bootclock.Boot().Now()
	if err := victim.Signal(os.Kill); err != nil {
		return nil, err
	}
	err := f.wait(ctx, "the dead worker's partitions run elsewhere", func() bool {
		for p, o := range before {
			if o.process == victim && f.running[p].process == victim {
				return false
			}
		}
		return true
	})
	if err != nil {
		return nil, err
	}
	var took []time.Duration
	for p, o := range f.owners() {
		if before[p].process == victim {
			took = append(took, o.at-at)
		}
	}
	return took, nil
}
