package raftstore

// Observer is told figures as they arise. Its methods are called on hot paths
// and from several goroutines: they must not block.
type Observer interface {
	// CommitSeconds is the time from building a log entry to its results.
	CommitSeconds(s float64)
	// FsyncSeconds is how long a synced write took; store is "log" or "stable".
	FsyncSeconds(store string, s float64)
	// BatchCommands is how many commands one entry carries.
	BatchCommands(n int)
	// KeepAlives counts n renewals that ended the same way: "renewed",
	// "refused" (by the state) or "failed" (not committed).
	KeepAlives(n int, outcome string)
	// ApplySeconds is how long an entry took to be applied to the state.
	ApplySeconds(s float64)
	// SessionExpired is told of each session that this server, as leader, has
	// expired, and how long after its deadline.
	SessionExpired(overdue float64)
	// LeaderChange is called when this server hears of another leader.
	LeaderChange()
	// SnapshotSeconds is how long a snapshot took to write.
	SnapshotSeconds(s float64)
	// SnapshotFailed is called when a snapshot could not be written.
	SnapshotFailed()
	// DiskHangs is called when a disk operation passes Config.HangBound.
	DiskHangs()
	// CallerRefused is called when the other end of a connection is not the server
	// that its certificate, or the configuration, would have it be.
	CallerRefused()
	// FrameRefused is called when a server has sent a request that is too large, or
	// none that a server would make.
	FrameRefused()
}

// noObserver takes the place of a nil Config.Metrics.
type noObserver struct{}

func (noObserver) CommitSeconds(float64)        {}
func (noObserver) FsyncSeconds(string, float64) {}
func (noObserver) BatchCommands(int)            {}
func (noObserver) KeepAlives(int, string)       {}
func (noObserver) ApplySeconds(float64)         {}
func (noObserver) SessionExpired(float64)       {}
func (noObserver) LeaderChange()                {}
func (noObserver) SnapshotSeconds(float64)      {}
func (noObserver) SnapshotFailed()              {}
func (noObserver) DiskHangs()                   {}
func (noObserver) CallerRefused()               {}
func (noObserver) FrameRefused()                {}
