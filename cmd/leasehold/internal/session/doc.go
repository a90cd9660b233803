// Package session keeps an etcd lease alive for `leasehold lock` and its kin, and
// knows by itself until when it may be relied upon.
//
// Promises: the session counts as lost at the send time of the last acknowledged
// keep-alive plus TTL, less the margin and the grace that its user asked for, on
// the boot clock; it is looked at every fifth of the margin, so a suspended machine
// finds out as soon as it goes on. An acknowledgement that comes after that changes
// nothing. The library's own KeepAlive counts from the receipt of an answer, which
// is too late by the time the answer was on its way.
//
// It does not promise that the process was running at the deadline: a process that
// is stopped stops nothing. What must end even then is the keeper's (package
// sidecar), or is refused by a fence that knows the token.
//
// Goroutines: one per session, and one more while a keep-alive is on its way. Close
// waits for both.
package session
