// Package auth finds out who calls a server, and lets through only what that
// caller may do.
//
// Who calls is proven by a client certificate or by the secret of a credential; a
// server without TLS believes everybody, on the same way through the code. What a
// caller may do is said by the Rules of each API. A method that no Rules know is
// refused to everybody.
//
// It promises:
//   - Every call over gRPC and over HTTP takes the same way. The identity is in the
//     call's context (access.FromContext) before anything else runs.
//   - Each message of a stream is looked at like a call of its own.
//   - A stream, and a call that waits, ends at once when its credential is revoked
//     or runs out.
//   - What one server says of a caller to another is believed only when that server
//     has proven that it is one.
//   - No secret is in an error, in the log or in the audit log.
//
// It runs no goroutine. One timer runs while a call of somebody known is open.
package auth
