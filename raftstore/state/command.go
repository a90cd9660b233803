package state

import "time"

// Command is one change, as it stands in the log. The concrete types below
// are all there are. A number, once given, is never used for anything else.
type Command interface {
	number() uint16
	code(*coder)
}

// Command numbers. Numbers with the bit mayIgnore are skipped by a server
// that does not know them; any other unknown number stops it.
const (
	cmdBootstrap      uint16 = 1
	cmdAnnounce       uint16 = 2
	cmdTick           uint16 = 3
	cmdKeepAlive      uint16 = 4
	cmdExpire         uint16 = 5
	cmdOpenSession    uint16 = 6
	cmdJoinKeyspace   uint16 = 7
	cmdLeaveSession   uint16 = 8
	cmdCloseSession   uint16 = 9
	cmdCreateKeyspace uint16 = 10
	cmdUpdateKeyspace uint16 = 11
	cmdDeleteKeyspace uint16 = 12
	cmdGrant          uint16 = 13
	cmdRelease        uint16 = 14
	cmdDrain          uint16 = 15
	cmdRevoke         uint16 = 16
	cmdBarWorker      uint16 = 17
	cmdEvict          uint16 = 18
	cmdRetry          uint16 = 19
	cmdRaiseToken     uint16 = 20
	cmdRaiseFeature   uint16 = 21
	cmdTransact       uint16 = 22
	cmdCompact        uint16 = 23
	cmdGrantLease     uint16 = 24
	cmdRevokeLease    uint16 = 25
	cmdEnqueue        uint16 = 26
	cmdSequence       uint16 = 27
	cmdSetAlarm       uint16 = 28
	cmdOpenOwned      uint16 = 29 // OpenSession with an Owner
	cmdGrantOwned     uint16 = 30 // GrantLease with an Owner
	cmdPutCredential  uint16 = 31
	cmdRevokeCred     uint16 = 32
	cmdSetKeyring     uint16 = 33

	mayIgnore uint16 = 1 << 15
)

// Batch is the content of one log entry. Commands apply in order; each has
// its own result, and one that is refused changes nothing and stops nobody.
type Batch struct {
	// Wall is the leader's wall clock, for display in the ledger only.
	Wall time.Time
	// Requests, when not nil, has one id per command: 0 (none), or a random
	// id under which a retry of the same proposal is recognised. Neighbours
	// with the same id are one proposal; an id that comes again later, in this
	// entry or another, is refused with ReasonUnknownOutcome.
	Requests []uint64
	Commands []Command
}

// Bootstrap gives a new cluster its identity and its first token. A second
// one is refused with ReasonExists.
type Bootstrap struct {
	ClusterID  string
	FirstToken Token // the counter starts here: the first grant gets at least this
}

// Announce is the first command of a leader's term: how to reach it.
type Announce struct {
	Term   uint64
	Server Server
}

// Server is where a server can be reached.
type Server struct {
	ID, RaftAddr, GRPCAddr, HTTPAddr, GossipAddr, Version string
}

// Tick advances the clock. Elapsed is the leader's boot-clock time since its
// previous clock entry of this Term (0 for the first); Apply caps it at
// MaxElapsed and takes it as 0 in any other term. The same holds for the
// Elapsed of KeepAlive and Expire.
type Tick struct {
	Term    uint64
	Elapsed time.Duration
}

// KeepAlive advances the clock, then renews: deadline = max(deadline, clock +
// TTL). Result.Sessions has, per session, whether it was renewed.
type KeepAlive struct {
	Term     uint64
	Elapsed  time.Duration
	Sessions []SessionID
}

// Expire advances the clock, then ends each session whose last renewal is
// still Renewal and whose deadline the clock has reached. Others are refused.
type Expire struct {
	Term     uint64
	Elapsed  time.Duration
	Sessions []Expiry
}

// Expiry is a condition: the log index of the session's last renewal.
type Expiry struct {
	Session SessionID
	Renewal uint64
}

// OpenSession opens a session for a worker if the worker's incarnation is
// still Incarnation (0: no session known). The previous session, if any, is
// superseded: barred from renewal and grants; its fenced leases are revoked
// at once, its strict ones last until released or expired. A session with the
// same id that is already the worker's present one is found again (retry).
//
// Owner is who opens it, as access.Identity.Owner says. While the worker's
// present session belongs to somebody else, and is not barred, everybody but its
// owner is refused with ReasonDenied. An owner needs feature level 3.
type OpenSession struct {
	Session     SessionID
	Worker      string
	Incarnation uint64
	Keyspaces   []string // at least one; all must exist and not be deleting
	Endpoint    string
	Zone        string
	Addr        string // remote address, for messages
	Capacity    uint32 // 0: no limit
	Labels      map[string]string
	Gossip      bool
	Owner       string // empty: nobody in particular
}

// JoinKeyspace adds a keyspace to a session. The session's TTL becomes the
// lesser of the two; its deadline never moves back.
type JoinKeyspace struct {
	Session  SessionID
	Keyspace string
}

// LeaveSession marks a session as leaving: no more grants; the controller
// drains what it holds. Restart says the same worker id is coming back.
type LeaveSession struct {
	Session SessionID
	Restart bool
}

// CloseSession ends a session by its own wish, releasing what it still holds
// (the worker vouches that no handler runs).
type CloseSession struct {
	Session SessionID
}

// Takeover is how a dead worker's partitions move.
type Takeover uint8

// A strict lease ends only by release or expiry. A fenced one may be revoked
// as soon as its worker is known dead; the resource's guard does the rest.
const (
	Strict Takeover = 1
	Fenced Takeover = 2
)

// Settings of a keyspace that may change.
type Settings struct {
	TTL            time.Duration
	Takeover       Takeover
	HandoffTimeout time.Duration // default 30 s
	RestartGrace   time.Duration // default 0
	InitialDelay   time.Duration // default 1 s
}

// CreateKeyspace makes a keyspace of fixed P.
type CreateKeyspace struct {
	Name       string
	Partitions uint32
	Settings   Settings
}

// UpdateKeyspace replaces the settings. Sessions keep their TTL unless the
// new one is lower (then as JoinKeyspace).
type UpdateKeyspace struct {
	Name     string
	Settings Settings
}

// DeleteKeyspace bars the keyspace; fenced leases are revoked at once, strict
// ones are marked draining without a target. It is gone with its last lease.
type DeleteKeyspace struct {
	Name string
}

// Grant gives partitions to sessions. Each item is a condition: the partition
// has no owner, its last token is LastToken, and the session is live, not
// leaving, not barred, has joined the keyspace, its worker is not drained and
// it is below its capacity. Items that fail are refused on their own.
type Grant struct {
	Term     uint64
	Keyspace KeyspaceID
	Items    []GrantItem
	Cause    Cause
}

// GrantItem is one conditional grant.
type GrantItem struct {
	Partition uint32
	LastToken Token
	Session   SessionID
}

// Release gives leases back, each with its token. A draining lease with a
// target that can still receive is granted to it in the same command.
type Release struct {
	Session SessionID
	Items   []LeaseRef
	Cause   Cause  // CauseDrained, CauseYield, CauseFailed, CauseEnded, CauseClaimRefused, CauseRefused
	Error   string // for the ledger's poison record, at most 256 bytes
}

// LeaseRef names one lease of one holder.
type LeaseRef struct {
	Keyspace  KeyspaceID
	Partition uint32
	Token     Token
}

// Drain marks leases as draining, or changes their targets. Each item is a
// condition on the token. Timeout counts on the logical clock from now.
type Drain struct {
	Term     uint64
	Keyspace KeyspaceID
	Items    []DrainItem
	Timeout  time.Duration
	Cause    Cause
}

// DrainItem asks the holder of Token to finish. Target 0: release only.
// Reserve: after release keep the partition for the same worker id (slot).
type DrainItem struct {
	Partition uint32
	Token     Token
	Target    SessionID
	Reserve   bool
}

// Revoke ends fenced leases; on a strict keyspace it is refused.
type Revoke struct {
	Term     uint64
	Keyspace KeyspaceID
	Items    []RevokeItem
	Cause    Cause
}

// RevokeItem is a condition on holder and token.
type RevokeItem struct {
	Partition uint32
	Session   SessionID
	Token     Token
}

// BarWorker sets or lifts an operator's drain of a worker id. It outlives
// sessions, restarts and leaders.
type BarWorker struct {
	Worker  string
	Drained bool
}

// Evict bars the worker's present session and drains the worker id.
type Evict struct {
	Worker string
}

// Retry ends the quarantine of a partition and forgets its failures.
type Retry struct {
	Keyspace  KeyspaceID
	Partition uint32
}

// RaiseToken lifts the counter: the next token will be above Token.
type RaiseToken struct {
	Token Token
}

// RaiseFeature lifts the feature level: from here on the log may hold what
// servers below Level do not know. Term is that of the leader, which has seen
// that every server of the group knows it.
type RaiseFeature struct {
	Term  uint64
	Level Feature
}

func (o *OpenSession) number() uint16 {
	if o.Owner != "" {
		return cmdOpenOwned
	}
	return cmdOpenSession
}

func (g *GrantLease) number() uint16 {
	if g.Owner != "" {
		return cmdGrantOwned
	}
	return cmdGrantLease
}

func (*Bootstrap) number() uint16        { return cmdBootstrap }
func (*Announce) number() uint16         { return cmdAnnounce }
func (*Tick) number() uint16             { return cmdTick }
func (*KeepAlive) number() uint16        { return cmdKeepAlive }
func (*Expire) number() uint16           { return cmdExpire }
func (*JoinKeyspace) number() uint16     { return cmdJoinKeyspace }
func (*LeaveSession) number() uint16     { return cmdLeaveSession }
func (*CloseSession) number() uint16     { return cmdCloseSession }
func (*CreateKeyspace) number() uint16   { return cmdCreateKeyspace }
func (*UpdateKeyspace) number() uint16   { return cmdUpdateKeyspace }
func (*DeleteKeyspace) number() uint16   { return cmdDeleteKeyspace }
func (*Grant) number() uint16            { return cmdGrant }
func (*Release) number() uint16          { return cmdRelease }
func (*Drain) number() uint16            { return cmdDrain }
func (*Revoke) number() uint16           { return cmdRevoke }
func (*BarWorker) number() uint16        { return cmdBarWorker }
func (*Evict) number() uint16            { return cmdEvict }
func (*Retry) number() uint16            { return cmdRetry }
func (*RaiseToken) number() uint16       { return cmdRaiseToken }
func (*RaiseFeature) number() uint16     { return cmdRaiseFeature }
func (*Transact) number() uint16         { return cmdTransact }
func (*Compact) number() uint16          { return cmdCompact }
func (*RevokeLease) number() uint16      { return cmdRevokeLease }
func (*Enqueue) number() uint16          { return cmdEnqueue }
func (*Sequence) number() uint16         { return cmdSequence }
func (*SetAlarm) number() uint16         { return cmdSetAlarm }
func (*PutCredential) number() uint16    { return cmdPutCredential }
func (*RevokeCredential) number() uint16 { return cmdRevokeCred }
func (*SetKeyring) number() uint16       { return cmdSetKeyring }
