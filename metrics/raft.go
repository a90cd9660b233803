package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Raft holds the series of the Raft group as one server sees it. It belongs to
// a Server. raftstore tells it what it measures itself, so that several servers
// of one process (tests, dev) do not mix; the Sink adds what only the raft
// library knows.
type Raft struct {
	storage
	commit        prometheus.Histogram
	fsync         prometheus.Histogram
	apply         prometheus.Histogram
	leaderChanges prometheus.Counter
	isLeader      prometheus.Gauge
	hasLeader     prometheus.Gauge
	term          prometheus.Gauge
	commitIndex   prometheus.Gauge
	appliedIndex  prometheus.Gauge
	lastIndex     prometheus.Gauge
	lastContact   prometheus.Gauge
	voters        prometheus.Gauge
	inContact     prometheus.Gauge
	followerLag   prometheus.Gauge
	poisoned      prometheus.Gauge
	stalls        prometheus.Counter
	lastBackup    prometheus.Gauge

	saturation  gauges
	oldestLog   prometheus.Gauge
	lastRestore prometheus.Gauge
	dispatch    prometheus.Histogram
	batch       prometheus.Histogram
	answer      prometheus.Histogram
	leaseLost   prometheus.Counter
	elections   prometheus.Counter

	replication       prometheus.Histogram
	silence           prometheus.Histogram
	heartbeatTimeouts prometheus.Counter
	snapshotsSent     prometheus.Counter
	snapshotsReceived prometheus.Counter
}

// applyBuckets begin below a millisecond: an entry is memory and nothing else.
var applyBuckets = []float64{.00001, .0001, .001, .01, .1, 1}

func (r *Raft) add(s *set) {
	r.commit = s.histogram("raft_commit_duration_seconds",
		"Time from handing an entry to Raft to its commit, on the leader.", diskBuckets)
	r.batch = s.histogram("raft_entry_commands", "Commands carried by one log entry.", prometheus.ExponentialBuckets(1, 4, 7))
	r.fsync = s.histogram("raft_fsync_duration_seconds", "Time a durable write of the log or of a vote took.", diskBuckets)
	r.apply = s.histogram("raft_apply_duration_seconds", "Time to apply one committed entry to the state.", applyBuckets)
	r.leaderChanges = s.counter("raft_leader_changes_total", "Times this server saw another leader than before, losing one included.")
	r.isLeader = s.gauge("raft_is_leader", "1 while this server leads, else 0.")
	r.hasLeader = s.gauge("raft_has_leader", "1 while this server knows a leader, else 0.")
	r.term = s.gauge("raft_term", "Current term.")
	r.commitIndex = s.gauge("raft_commit_index", "Highest log index known to be committed.")
	r.appliedIndex = s.gauge("raft_applied_index", "Highest log index applied to the state.")
	r.lastIndex = s.gauge("raft_last_log_index", "Highest log index stored.")
	r.lastContact = s.gauge("raft_leader_last_contact_seconds", "Time since this server last heard from the leader; 0 on the leader.")
	r.voters = s.gauge("raft_voters", "Servers with a vote.")
	r.inContact = s.gauge("raft_voters_in_contact", "Voters that answered the leader within the last second, itself included; 0 on servers that do not lead.")
	r.followerLag = s.gauge("raft_follower_lag_entries", "Log entries that the voter that is furthest behind has yet to store; 0 on servers that do not lead.")
	r.poisoned = s.gauge("storage_poisoned", "1 after a failed write or fsync: the server writes nothing more and ends.")
	r.stalls = s.counter("raft_disk_stalls_total", "Times a log write hung so long that the server stopped sending as leader.")
	r.lastBackup = s.gauge("backup_last_success_timestamp_seconds",
		"When this server last sent a whole backup, as Unix time; 0: not since it runs.")
	r.oldestLog = s.gauge("raft_oldest_log_age_seconds", "Age of the oldest entry still in the log.")
	r.storage.add(s)
	r.addFromSink(s)
}

// BackedUp records that a whole backup has been sent.
func (r *Raft) BackedUp(at time.Time) { r.lastBackup.Set(float64(at.UnixMilli()) / 1000) }

func (r *Raft) addFromSink(s *set) {
	r.saturation = s.gauges("raft_thread_saturation_ratio", "Share of its time that a Raft thread is busy.", "thread", "main", "fsm")
	r.lastRestore = s.gauge("raft_last_restore_duration_seconds", "Time the last restore of a snapshot took.")
	r.dispatch = s.histogram("raft_dispatch_duration_seconds", "Time the leader took to store a batch of entries and hand it to replication.", diskBuckets)
	r.answer = s.histogram("raft_append_duration_seconds", "Time a follower took to answer one AppendEntries with entries.", diskBuckets)
	r.leaseLost = s.counter("raft_leader_leases_lost_total", "Times this server stopped leading because a majority did not answer.")
	r.elections = s.counter("raft_elections_started_total", "Times this server stood for election.")
	r.replication = s.histogram("raft_replication_duration_seconds", "Time from sending entries to a follower to its answer, all followers together; on the leader.", callBuckets)
	r.silence = s.histogram("raft_follower_silence_seconds", "How long a follower had not answered when the leader looked; near the leader lease it stops leading.",
		[]float64{.025, .05, .1, .25, .5, 1, 2.5})
	r.heartbeatTimeouts = s.counter("raft_heartbeat_timeouts_total", "Times this server had heard nothing from a leader for so long that it asked for an election.")
	r.snapshotsSent = s.counter("raft_snapshots_sent_total", "Snapshots sent to followers that the log could not catch up.")
	r.snapshotsReceived = s.counter("raft_snapshots_received_total", "Snapshots received because the leader's log did not reach back.")
}

// RaftStatus is what one look at Raft says.
type RaftStatus struct {
	IsLeader, HasLeader bool
	Term                uint64
	CommitIndex         uint64
	AppliedIndex        uint64
	LastLogIndex        uint64
	// LastContact is the time since the leader was last heard of, 0 on it.
	LastContact time.Duration
	Voters      int
	// InContact and FollowerLag are known to the leader, and 0 elsewhere.
	InContact   int
	FollowerLag uint64
}

// Observe sets the gauges from one look at Raft.
func (r *Raft) Observe(s RaftStatus) {
	if r == nil {
		return
	}
	boolGauge(r.isLeader, s.IsLeader)
	boolGauge(r.hasLeader, s.HasLeader)
	r.term.Set(float64(s.Term))
	r.commitIndex.Set(float64(s.CommitIndex))
	r.appliedIndex.Set(float64(s.AppliedIndex))
	r.lastIndex.Set(float64(s.LastLogIndex))
	r.lastContact.Set(s.LastContact.Seconds())
	r.voters.Set(float64(s.Voters))
	r.inContact.Set(float64(s.InContact))
	r.followerLag.Set(float64(s.FollowerLag))
}

// Committed records the time from handing an entry to Raft to its commit.
func (r *Raft) Committed(d time.Duration) {
	if r != nil {
		r.commit.Observe(d.Seconds())
	}
}

// Batched records how many commands one entry carried.
func (r *Raft) Batched(n int) {
	if r != nil {
		r.batch.Observe(float64(n))
	}
}

// Fsync records a durable write.
func (r *Raft) Fsync(d time.Duration) {
	if r != nil {
		r.fsync.Observe(d.Seconds())
	}
}

// Applied records the time that applying one entry took.
func (r *Raft) Applied(d time.Duration) {
	if r != nil {
		r.apply.Observe(d.Seconds())
	}
}

// LeaderChanged counts a change of the leader that this server sees.
func (r *Raft) LeaderChanged() {
	if r != nil {
		r.leaderChanges.Inc()
	}
}

// Poisoned tells that the store will write nothing more.
func (r *Raft) Poisoned() {
	if r != nil {
		r.poisoned.Set(1)
	}
}

// DiskStalled counts a log write that hung past the bound.
func (r *Raft) DiskStalled() {
	if r != nil {
		r.stalls.Inc()
	}
}
