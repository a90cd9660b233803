// Package exampletest runs the example programs as their users do: built by go
// build, as real processes, against a real `leasehold dev` on loopback, so that
// tests can kill, stop and resume them.
//
// It promises that nothing outlives a test: a process that was started for one
// is ended with it, and [Main] removes the binaries. It is for tests only and
// runs two goroutines for each process: one waits for its end, one (of os/exec)
// copies its output.
package exampletest
