// Package gossip tells who is there: servers and workers find each other, and
// learn within about half a second that one has died, over memberlist (SWIM).
//
// That is for single deaths of processes; where a machine is gone and refuses
// nothing it takes a quarter of a second more. When most members die at once,
// those left take the silence for a fault of their own and go slowly: minutes
// for hundreds. Probe is for who cannot wait.
//
// It is a hint. It never decides who owns what, and nothing may be granted,
// prolonged or, in strict mode, ended on its word. Everything works without it.
//
// Promises:
//   - Members are copies from a table of our own; no memberlist object leaves
//     the package.
//   - A split heals by itself: servers that should be there and are not are
//     tried again for ever, from the seeds, from memory and from a file.
//   - A process of another cluster (label, key, cluster id) never appears, and
//     is told why; a member that learns its cluster late drops the others'.
//   - Lost packets make nobody dead: who is declared dead is asked once more.
//   - Servers and workers find each other again as long as some one knows where
//     some other is, from seeds, memory or file.
//   - What arrives from the network can be ignored, never crash or block.
//
// # Threads
//
// Run starts seven goroutines of its own: one looks at what arrives before
// memberlist does, one tells that something changed, one
// publishes our changed meta, one looks for missing members (and up to
// maxJoins short-lived ones that try an address each), one answers probes for
// others (and up to maxAsks short-lived ones), one writes the file of known
// peers, one asks those that were declared dead (and up to maxConfirms
// short-lived ones, each with two more). memberlist and its transport start
// about ten more. All have returned when Run returns.
package gossip
