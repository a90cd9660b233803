// Package auditlog keeps a file of who has called what, in which nothing can be
// changed unseen: each line has the SHA-256 of itself and of the line before.
//
// A Log promises
//
//   - that Record never waits: a call is not held up by the disk;
//   - that no entry is missing in silence. Where one could not be written, since
//     the disk failed or is too slow for the queue, the next line that can be
//     written says how many were lost; the log of the server says so at once, and
//     Config.Lost counts them;
//   - that callers whom nobody knows cannot push the entries of the others out of
//     the files: above a rate, their entries are counted and not written;
//   - that what was written is on disk a second later.
//
// It does not show that the newest lines were cut off, or that somebody who may
// write the files has made all of them anew. Who keeps the hash of a line
// elsewhere can look for it: Report.Has.
//
// A file is a segment. When it is large enough it gets the number of its first
// line as a suffix and a new one begins with the hash of its last line; the
// oldest segments are removed. A start goes on with the chain.
//
// A Log runs one goroutine, until Close.
package auditlog
