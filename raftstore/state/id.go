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
	MaxTTL              = time.Hour
	MaxLabels           = 16
	MaxLabelLen         = 128
	// MaxElapsed caps how far one entry may advance the clock.
	MaxElapsed = 2 * time.Second
)
