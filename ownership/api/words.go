package api

import (
	"strconv"

	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// kindName is the word for a kind of event.
func kindName(k state.Kind) string {
	switch k {
	case state.KindGrant:
		return "grant"
	case state.KindRelease:
		return "release"
	case state.KindRevoke:
		return "revoke"
	case state.KindExpire:
		return "expire"
	case state.KindDrain:
		return "drain"
	case state.KindSessionOpen:
		return "session_open"
	case state.KindSessionLeave:
		return "session_leave"
	case state.KindSessionClose:
		return "session_close"
	case state.KindSessionExpire:
		return "session_expire"
	case state.KindSessionBar:
		return "session_bar"
	case state.KindKeyspaceCreate:
		return "keyspace_create"
	case state.KindKeyspaceUpdate:
		return "keyspace_update"
	case state.KindKeyspaceDelete:
		return "keyspace_delete"
	case state.KindKeyspaceGone:
		return "keyspace_gone"
	case state.KindWorkerDrain:
		return "worker_drain"
	case state.KindWorkerUndrain:
		return "worker_undrain"
	case state.KindQuarantine:
		return "quarantine"
	case state.KindRetry:
		return "retry"
	case state.KindLeader:
		return "leader"
	case state.KindTokenRaise:
		return "token_raise"
	case state.KindSessionKeyspace:
		return "session_keyspace"
	}
	return "kind_" + strconv.Itoa(int(k))
}

// causeName is the word for a cause.
func causeName(c state.Cause) string {
	switch c {
	case state.CauseNone:
		return ""
	case state.CauseInitial:
		return "initial"
	case state.CauseJoin:
		return "join"
	case state.CauseLeave:
		return "leave"
	case state.CauseRestart:
		return "restart"
	case state.CauseExpired:
		return "expired"
	case state.CauseCrash:
		return "crash"
	case state.CauseDrain:
		return "drain"
	case state.CauseBalance:
		return "balance"
	case state.CauseOperator:
		return "operator"
	case state.CauseSuperseded:
		return "superseded"
	case state.CauseEvicted:
		return "evicted"
	case state.CauseDrained:
		return "drained"
	case state.CauseYield:
		return "yield"
	case state.CauseFailed:
		return "failed"
	case state.CauseEnded:
		return "ended"
	case state.CauseClaimRefused:
		return "claim_refused"
	case state.CauseRefused:
		return "refused"
	case state.CauseTimeout:
		return "timeout"
	case state.CauseDeleted:
		return "deleted"
	case state.CauseClosed:
		return "closed"
	case state.CauseRetry:
		return "retry"
	}
	return "cause_" + strconv.Itoa(int(c))
}

// sessionWord is Worker.state for a session.
func sessionWord(s state.SessionState) string {
	switch s {
	case state.SessionLive:
		return "live"
	case state.SessionLeaving:
		return "leaving"
	case state.SessionSuperseded:
		return "superseded"
	case state.SessionEvicted:
		return "evicted"
	}
	return "unknown"
}
