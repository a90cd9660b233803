package state

// Kind says what happened.
type Kind uint8

// Kinds of events. The numbers are part of the snapshot format.
const (
	KindGrant           Kind = 1
	KindRelease         Kind = 2
	KindRevoke          Kind = 3
	KindExpire          Kind = 4 // a lease that ended with its session
	KindDrain           Kind = 5
	KindSessionOpen     Kind = 6
	KindSessionLeave    Kind = 7
	KindSessionClose    Kind = 8
	KindSessionExpire   Kind = 9
	KindSessionBar      Kind = 10 // superseded or evicted, see Cause
	KindKeyspaceCreate  Kind = 11
	KindKeyspaceUpdate  Kind = 12
	KindKeyspaceDelete  Kind = 13 // barred
	KindKeyspaceGone    Kind = 14
	KindWorkerDrain     Kind = 15
	KindWorkerUndrain   Kind = 16
	KindQuarantine      Kind = 17
	KindRetry           Kind = 18
	KindLeader          Kind = 19
	KindTokenRaise      Kind = 20
	KindSessionKeyspace Kind = 21 // a session joined a keyspace
	KindFeatureRaise    Kind = 22 // to the level that Token holds
	KindRestore         Kind = 23 // the cluster was made from a backup
	// Of a credential, Worker has the name and From the id.
	KindCredentialCreate Kind = 24
	KindCredentialRevoke Kind = 25
	KindKeyring          Kind = 26 // the keys of gossip were set to the version that Token holds
)

// Cause says why a lease changed hands. The numbers are part of the log and
// snapshot formats.
type Cause uint8

// Causes.
const (
	CauseNone         Cause = 0
	CauseInitial      Cause = 1  // first grants of a keyspace
	CauseJoin         Cause = 2  // balance: a worker joined
	CauseLeave        Cause = 3  // a worker left cleanly
	CauseRestart      Cause = 4  // a worker stopped and its slot was kept, or given back
	CauseExpired      Cause = 5  // a session ran out
	CauseCrash        Cause = 6  // fenced: known dead before its TTL
	CauseDrain        Cause = 7  // an operator drained a worker
	CauseBalance      Cause = 8  // evening out
	CauseOperator     Cause = 9  // partitions move
	CauseSuperseded   Cause = 10 // a newer session of the same worker
	CauseEvicted      Cause = 11
	CauseDrained      Cause = 12 // released after a drain
	CauseYield        Cause = 13
	CauseFailed       Cause = 14
	CauseEnded        Cause = 15 // the context had ended at the worker
	CauseClaimRefused Cause = 16
	CauseRefused      Cause = 17
	CauseTimeout      Cause = 18 // fenced: the handoff timeout passed
	CauseDeleted      Cause = 19
	CauseClosed       Cause = 20
	CauseRetry        Cause = 21 // a failed partition tried again
	// CauseCredentialRevoked: the credential that opened the session is no more.
	CauseCredentialRevoked Cause = 22
)

// Event is one line of the ledger. Which fields are set depends on Kind.
type Event struct {
	Revision  uint64
	Index     uint64
	Wall      int64 // Unix milliseconds, the proposing leader's; display only
	Token     Token
	Session   SessionID
	Worker    string // owner after a grant, owner before otherwise
	From      string // for a grant: the previous owner
	Keyspace  KeyspaceID
	Partition uint32
	Kind      Kind
	Cause     Cause
	// Target of a drain, 0 for none.
	Target SessionID
}
