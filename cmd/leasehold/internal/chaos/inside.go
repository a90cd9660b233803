package chaos

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/leasehold-dev/leasehold/cmd/leasehold/internal/faults"
)

type inner = faults.Settings

// maxPPM keeps the rates of any two clocks less than 1 % apart: of servers or
// of workers at a time, one side is right.
const maxPPM = 9_000

// inside puts faults into processes, and takes them out again.
func (r *runner) inside(names []string, which func(name string) inner) (func(context.Context) error, error) {
	for _, name := range names {
		if err := faults.Write(r.faultsFile(name), which(name)); err != nil {
			return nil, err
		}
	}
	return func(context.Context) error {
		var errs []error
		for _, name := range names {
			errs = append(errs, faults.Write(r.faultsFile(name), faults.Settings{}))
		}
		return errors.Join(errs...)
	}, nil
}

// serverClocks has some servers' clocks too fast, or some too slow: a lease is
// between a worker and whichever of them leads.
func (r *runner) serverClocks(ids []string, pick uint64) (func(context.Context) error, error) {
	wrong := maxPPM
	if pick>>32&1 == 0 {
		wrong = -maxPPM
	}
	rates := map[string]int{ids[pick%uint64(len(ids))]: wrong}
	for i, id := range ids {
		if pick>>(40+i)&1 == 0 {
			rates[id] = wrong
		}
	}
	return r.clocks(rates)
}

// workerClocks makes each worker's clock too fast, too slow or right.
func (r *runner) workerClocks(ids []string, pick uint64) (func(context.Context) error, error) {
	rates := map[string]int{}
	for i, id := range ids {
		rates[id] = []int{maxPPM, -maxPPM, 0}[(pick+uint64(i))%3]
	}
	return r.clocks(rates)
}

func (r *runner) clocks(rates map[string]int) (func(context.Context) error, error) {
	r.story.Note("clocks are too fast by, in millionths: %v", rates)
	return r.inside(slices.Sorted(maps.Keys(rates)), func(name string) inner { return inner{ClockPPM: rates[name]} })
}
