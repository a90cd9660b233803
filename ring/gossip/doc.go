// Package gossip tells who is there: servers and workers find each other, and
// learn within about half a second that one has died, over memberlist (SWIM).
//
// That is for single deaths. When most members die at once, those left take
// the silence for a fault of their own and go slowly: minutes for hundreds.
// Probe is for who cannot wait.
//
// It is a hint. It never decides who owns what, and nothing may be granted,
// prolonged or, in strict mode, ended on its word. Everything works without it.
//
// Promises:
//   - Members are copies from a table of our own; no memberlist object leaves
//     the package.
//   - A split heals by itself: servers that should be there and are not are
//     tried again for ever, from the seeds, from memory and from a file.
//   - A process of another cluster (label, key) never appears, and is told why.
//   - What arrives from the network can be ignored, never crash or block.
//
// # Threads
//
// Run starts five goroutines of its own: one tells that something changed, one
// publishes our changed meta, one looks for missing members (and up to
// maxJoins short-lived ones that try an address each), one answers probes for
// others (and up to maxAsks short-lived ones), one writes the file of known
// peers. memberlist and its transport start about ten more. All have returned
// when Run returns.
package gossip
