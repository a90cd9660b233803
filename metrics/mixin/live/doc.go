// Package live runs what an operator has, for tests: a cluster of the built
// binary, workers that write behind a guard, and a Prometheus that scrapes
// them, each a process on loopback with ports and directories of its own.
//
// Promise: when the test has ended, no process that it started is left; on
// Linux the kernel ends them too should the test be killed. Processes are only
// ever signalled by their own ids. When the test has failed, it shows how their
// logs end.
//
// LEASEHOLD_BINARY names a binary to use instead of building one. Where
// Prometheus is not installed the test is skipped, or fails when LEASEHOLD_CI
// is set.
//
// Goroutines: one for each process, which reaps it. Cluster, Worker and
// Prometheus may be used from several goroutines, but a process is started
// and ended by one at a time.
package live
