// Package pki builds every TLS configuration of the product, says who a
// certificate speaks for, and makes certificates, for those who have no authority
// of their own.
//
// A certificate says who its holder is in one URI among its alternative names,
// leasehold://CLUSTER/ROLE/NAME, with bounds as its query (see Name). Common names
// and host names say nothing: servers are known by the authority that signed them
// and by their role, whatever their address is today.
//
// Promises:
//   - TLS 1.3 alone, and no connection is resumed, so that each is judged anew.
//   - What is not understood is refused: no such URI, two of them, another spelling
//     of one, another cluster, an authority that is not in the file.
//   - New files are in use from the next handshake on, without a restart. Files
//     that are half written, do not fit each other or have run out change nothing
//     and are logged; the old ones stay in use.
//   - A revoked certificate is refused at the next handshake, and those who asked
//     (OnRevoked) learn of it, so that they can end what is open.
//   - A list of revocations that is past its next update is refused at the start.
//     When it gets old while the server runs, what it revokes stays revoked and
//     the rest goes on: a forgotten file does not lock everybody out.
//   - No error and no log line has a key in it.
//
// It runs no goroutine: files are looked at during handshakes, at most once a
// second. A Store may be used by several goroutines.
package pki
