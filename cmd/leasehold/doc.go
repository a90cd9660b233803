// Command leasehold is the one binary of Leasehold: the server, the tools for
// operators, and the demonstration.
//
// Commands live in a file per noun. They get the outside world as an env, talk
// to a cluster through ownership/client only, print through output.go, and
// return errors; exit.go has the one table from errors to exit codes. The
// process has one goroutine of its own, which waits for signals.
package main
