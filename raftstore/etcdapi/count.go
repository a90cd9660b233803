package etcdapi

import (
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// kind groups calls for the metrics.
type kind string

const (
	kindRange       kind = "range"
	kindPut         kind = "put"
	kindDelete      kind = "delete"
	kindTxn         kind = "txn"
	kindCompact     kind = "compact"
	kindLease       kind = "lease"
	kindWatch       kind = "watch"
	kindLock        kind = "lock"
	kindCluster     kind = "cluster"
	kindMaintenance kind = "maintenance"
	kindAuth        kind = "auth"
)

// effect is "write" for calls that may change something, else "read".
func (k kind) effect() string {
	switch k {
	case kindPut, kindDelete, kindTxn, kindCompact, kindLease, kindLock:
		return "write"
	}
	return "read"
}

// outcomeOf is "ok", "unavailable" for what another try may mend, else
// "refused".
func outcomeOf(err error) string {
	switch status.Code(err) {
	case codes.OK:
		return "ok"
	case codes.Unavailable, codes.Unknown, codes.Internal, codes.DeadlineExceeded, codes.Canceled:
		return "unavailable"
	default:
		return "refused"
	}
}

// count notes how a call ended.
func (a *API) count(k kind, err error) { a.cfg.Metrics.Call("etcd", string(k), outcomeOf(err)) }
