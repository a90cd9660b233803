// Package clientgo has client-go's leader election work on Leasehold's key store, for
// controllers that use k8s.io/client-go/tools/leaderelection and run outside Kubernetes,
// or do not want their election to depend on its API server. Copy it.
//
// Lock is a resourcelock.Interface over one key of the etcd API: each write is a
// compare-and-set on the revision that was read. Unlike a Kubernetes Lease it carries a
// fencing token: each term draws one from the cluster's counter before the write that
// begins the term, so a later term has a higher token, also after the key was deleted, or
// the cluster restored from a backup. Give it to what the leader writes to.
//
// Elect adds what client-go's own callbacks leave to their users:
//
//   - The work is called at most once per candidature, and Stopped exactly once for each
//     time that it was called, after it has returned; never without.
//   - Leadership is given up only after the work has returned. If the work does not return
//     it is not given up at all: it runs out, and the token is what protects the resource.
//   - A cancelled context ends the work first, and then the leadership.
//
// client-go's election compares no clocks, but it trusts that they run at about the same
// rate and that a leader stops when it should: without a guard at the resource two leaders
// can be at work at once. This package does not change that.
//
// Elect starts the goroutines of client-go's elector, and one for the work; all have ended
// when it returns.
package clientgo
