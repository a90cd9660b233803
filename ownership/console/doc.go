// Package console is the web console of one server: its files, embedded, and the
// feed that they live on. A server mounts Handler under Prefix and runs Run.
//
// # Promises
//
//   - Everything shown is this server's own state, by the code that answers
//     ListPartitions, ListWorkers and ListPeers: it goes on without a leader, and
//     says how old it is.
//   - All viewers of a keyspace get the same bytes, encoded once, at most two
//     messages a second; looking and encoding take a small share of one core, and
//     the pace slows down where they would take more. Nobody watches, nothing is
//     done.
//   - A viewer that does not keep up loses nothing but the steps between: it gets
//     the whole picture anew.
//   - No page of another site can change anything, or read, through an operator's
//     browser: see Guard. Nothing is loaded from elsewhere, and nothing inline runs.
//
// # The feed
//
// GET /ui/feed?keyspace=K is a stream of server-sent events: hello, once; full, the
// whole picture; delta, what has changed since the message before. See message.go.
//
// # Goroutines
//
// One, in Run, which sleeps while nobody watches. A viewer is served by the
// goroutine that its HTTP server started.
package console
