package state

import "strconv"

// name looks a number up in a table of words; what has none is shown as a
// number, so that a newer server's events stay readable.
func name(table []string, i int) string {
	if i < len(table) && table[i] != "" {
		return table[i]
	}
	return strconv.Itoa(i)
}

// String is the word of the API and the console.
func (k Kind) String() string {
	return name([]string{
		KindGrant: "grant", KindRelease: "release", KindRevoke: "revoke", KindExpire: "expire", KindDrain: "drain",
		KindSessionOpen: "session_open", KindSessionLeave: "session_leave", KindSessionClose: "session_close",
		KindSessionExpire: "session_expire", KindSessionBar: "session_bar", KindSessionKeyspace: "session_keyspace",
		KindKeyspaceCreate: "keyspace_create", KindKeyspaceUpdate: "keyspace_update",
		KindKeyspaceDelete: "keyspace_delete", KindKeyspaceGone: "keyspace_gone",
		KindWorkerDrain: "worker_drain", KindWorkerUndrain: "worker_undrain",
		KindQuarantine: "quarantine", KindRetry: "retry", KindLeader: "leader", KindTokenRaise: "token_raise",
		KindFeatureRaise: "feature_raise", KindRestore: "restore",
		KindCredentialCreate: "credential_create", KindCredentialRevoke: "credential_revoke", KindKeyring: "keyring",
	}, int(k))
}

// String is the word of the API, the console and the metrics.
func (c Cause) String() string {
	return name([]string{
		CauseNone: "none", CauseInitial: "initial", CauseJoin: "join", CauseLeave: "leave", CauseRestart: "restart",
		CauseExpired: "expired", CauseCrash: "crash", CauseDrain: "drain", CauseBalance: "balance",
		CauseOperator: "operator", CauseSuperseded: "superseded", CauseEvicted: "evicted", CauseDrained: "drained",
		CauseYield: "yield", CauseFailed: "failed", CauseEnded: "ended", CauseClaimRefused: "claim_refused",
		CauseRefused: "refused", CauseTimeout: "timeout", CauseDeleted: "deleted", CauseClosed: "closed",
		CauseRetry: "retry", CauseCredentialRevoked: "credential_revoked",
	}, int(c))
}

// String is "strict" or "fenced".
func (t Takeover) String() string {
	return name([]string{Strict: "strict", Fenced: "fenced"}, int(t))
}

// String is "live", "leaving", "superseded" or "evicted".
func (s SessionState) String() string {
	return name([]string{
		SessionLive: "live", SessionLeaving: "leaving",
		SessionSuperseded: "superseded", SessionEvicted: "evicted",
	}, int(s))
}
