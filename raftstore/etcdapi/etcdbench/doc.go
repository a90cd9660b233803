// Command etcdbench measures Leasehold beside etcd, in one run on one machine:
// three server processes each, with fsync, and etcd's own client for both. It
// is a module of its own, so that the product does not depend on etcd's server.
//
//	make etcdbench
//
// prints a table; -o json prints one line for each figure. Machines differ
// and are noisy; the ratios of one run are what it is for. A third kind of
// server, that answers each read with the same bytes at once, shows what gRPC
// and the client leave for anybody ("ceiling").
package main
