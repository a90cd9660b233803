// Package backup is the file format of backups: a manifest that says what is
// in it, the snapshot of the state in checked blocks, and a sum over all.
//
//	magic     8 bytes, "LHBACKUP"
//	version   1 byte, 1
//	manifest  length 4 bytes, CRC-32C 4 bytes, then that many bytes of JSON
//	block     length 4 bytes (1 to 262,144), CRC-32C 4 bytes, then that many
//	          bytes of the snapshot, which is in the format of raftstore/state
//	…
//	end       length 4 bytes, 0
//	trailer   length of the snapshot 8 bytes, SHA-256 32 bytes
//	nothing   what follows is refused
//
// Numbers are little-endian. A CRC covers the length before it and what
// follows. SHA-256 covers everything before itself.
//
// # Promises
//
//   - Writing and reading stream: neither holds more than a block, whatever the
//     size of the state (Load, which decodes the state, holds the state).
//   - A file that was cut off, or in which any bit differs, is refused with a
//     *DamagedError that names the offset; nothing of a bad block is handed out.
//   - A version that this release does not know is refused with a
//     *VersionError. Files of every version are opened for ever; unknown fields
//     of the manifest are passed over.
//
// The sums are against damage, not against forgery: whoever can write the file
// can make them fit. A backup has no secrets in it, but names of keyspaces and
// workers.
//
// # A backup and a new cluster
//
// A backup is only ever restored into the data directory of a *new* cluster, by
// raftstore.Seed and after state.Rebase. Restoring into a running cluster is
// refused by design: Raft's own Restore is not atomic, and a leader that is cut
// off in the middle of it keeps the backup's state and rejects every append of
// the others for good, also after a restart. And it would let tokens go back.
//
// The package starts no goroutine.
package backup
