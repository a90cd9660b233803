// Package doctor finds out what is wrong with a cluster: it asks every server
// directly, twice with some time between, and makes findings of the answers.
//
// Collect does the asking; it needs no leader and no quorum, and what does not
// answer is itself a fact. Examine is pure: facts in, findings out, the worst
// first. Each finding has its figures, why it matters and what to do next.
//
// Promises: a finding rests on figures that were measured and says which; what
// could not be asked is said and never taken for healthy. Counters count by how
// much they grew between the looks.
//
// The package changes nothing in the cluster. Collect starts one goroutine per
// server for each round and waits for them.
package doctor
