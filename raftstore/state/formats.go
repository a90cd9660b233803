package state

// Formats are the versions of what this release writes: log entries, each of
// which is a batch of commands, and snapshots.
func Formats() (batch, snapshot int) { return batchVersion, snapshotVersion }
