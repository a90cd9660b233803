// Package server is one Leasehold server in-process: the same that `leasehold
// server` runs, for the command, for tests and for embedders. It builds the
// floors bottom-up (Raft store, gossip, controller, API, listeners), forms or
// joins the cluster, and stops them top-down.
//
// New opens the listeners and the data directory, Run works until its context
// ends. Eight goroutines of this package run while a server does: one for each
// of store, gossip, gRPC and HTTP, one more for each of the two listeners and
// for the API, and the one that forms the cluster and keeps the figures up. The
// leader's duties are four more. A look at the disk for GetHealth is one more
// while it lasts, and so is a question to another server of the same id;
// everything else belongs to the packages below.
package server
