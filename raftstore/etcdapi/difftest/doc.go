// Package difftest holds Leasehold's etcd dialect against etcd itself. Nothing
// in it is part of the product; it is a module of its own so that the product
// does not depend on etcd's server.
//
// Leasehold runs as processes of the built binary, never linked into the tests:
// etcd's server and etcdapi register the same protobuf names. etcd runs inside
// the test, with its log and fsync on disk.
//
// What is compared is every field of every answer and both code and text of
// every error, apart from what exempt.go lists with its reasons.
//
// An operation is what one client would have to ask for by itself: each call,
// each event stream created or cancelled, and of a transaction each operation
// that its chosen branches carried out (the transaction itself is not counted
// then; one that is refused or does nothing counts as one). Comparisons are
// not counted.
//
// Goroutines: one for each watch stream of a side; they end with the stream.
package difftest
