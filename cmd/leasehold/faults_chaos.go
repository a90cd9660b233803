//go:build chaos

package main

import (
	"fmt"

	"github.com/leasehold-dev/leasehold/cmd/leasehold/internal/faults"
	"github.com/leasehold-dev/leasehold/ownership/bootclock"
	"github.com/leasehold-dev/leasehold/ownership/server"
)

// This binary is for tests: the file that LEASEHOLD_FAULTS names makes its
// disk slow and its clock wrong.

func (e env) faults() (*faults.Source, error) {
	file := e.getenv(faults.EnvVar)
	if file == "" {
		return nil, nil
	}
	fmt.Fprintf(e.stderr, "leasehold: %s %s\n", faults.Announced, file)
	return faults.Open(file)
}

func (e env) serverFaults(cfg *server.Config) error {
	source, err := e.faults()
	if err == nil && source != nil {
		cfg.Clock, cfg.WrapLog = source.Clock(), source.Log
	}
	return err
}

func (e env) workerFaults() (bootclock.Clock, error) {
	source, err := e.faults()
	if err != nil || source == nil {
		return nil, err
	}
	return source.Clock(), nil
}
