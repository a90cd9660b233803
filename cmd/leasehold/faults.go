//go:build !chaos

package main

import (
	"github.com/leasehold-dev/leasehold/ownership/bootclock"
	"github.com/leasehold-dev/leasehold/ownership/server"
)

// Only binaries built with -tags chaos can be made to have faults.

func (env) serverFaults(*server.Config) error { return nil }

func (env) workerFaults() (bootclock.Clock, error) { return nil, nil }
