package state

import "time"

// SessionID names a session for ever. It is drawn at random (63 bits, never
// 0) by whoever opens the session.
type SessionID uint64

// KeyspaceID numbers keyspaces from 1 in order of creation. It is never
// reused, also not when a keyspace of the same name is created again.
type KeyspaceID uint32

// Token is a fencing token. It is below 2^53, so that SQL BIGINT, JavaScript,
// Lua and floats hold it exactly; 0 means that none was ever granted.
type Token uint64

// Clock is a reading of the logical clock: time that leaders have measured
// since the cluster formed. It never runs faster than a leader's boot clock
// and stands still while there is no leader.
type Clock = time.Duration

// Limits that the state machine itself enforces, whoever proposes.
const (
	MaxToken      Token = 1<<53 - 1
	MaxPartitions       = 1 << 20
	MaxNameLen          = 128 // bytes of a keyspace name or worker id
	MaxTextLen          = 256 // bytes of an address, endpoint, zone or error
	MinTTL              = 500 * time.Millisecond
	MaxTTL              = time.Hour
	MaxLabels           = 16
	MaxLabelLen         = 128
	// MaxHandoffTimeout, MaxRestartGrace and MaxInitialDelay bound the other
	// durations of Settings.
	MaxHandoffTimeout = 24 * time.Hour
	MaxRestartGrace   = time.Hour
	MaxInitialDelay   = time.Hour
	// MaxKeyspaces bounds how many exist at a time, MaxJoined how many one
	// session may join, MaxServers how many servers are remembered.
	MaxKeyspaces = 1 << 16
	MaxJoined    = 1 << 10
	MaxServers   = 1 << 8
	// MaxElapsed caps how far one entry may advance the clock.
	MaxElapsed = 2 * time.Second
	// LedgerSize is how many events are kept.
	LedgerSize = 1 << 16
	// RequestWindow is how many request ids are remembered.
	RequestWindow = 1 << 16
	// SlotTime is how long an unreserved slot is kept.
	SlotTime = time.Minute
	// MaxSlots bounds the slots of one keyspace.
	MaxSlots = 1 << 10
	// ProbationTime is how long a lease must have lived for its partition to
	// be beyond suspicion: a session that dies sooner counts against it.
	ProbationTime = time.Minute
	// QuarantineWorkers is how many distinct workers must fail on a partition
	// before it is quarantined.
	QuarantineWorkers = 3
	// MinRetry and MaxRetry bound the time until a failed partition is tried
	// again; quarantined ones are tried every MaxRetry.
	MinRetry = time.Second
	MaxRetry = 5 * time.Minute
	// WorkerRetention is how long a worker without a session is remembered,
	// unless it is drained.
	WorkerRetention = time.Hour
)
