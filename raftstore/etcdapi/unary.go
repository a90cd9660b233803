package etcdapi

import (
	"context"
	"time"

	"google.golang.org/protobuf/proto"
)

// unary is the way of every unary call of a client: does anybody know who it is, is
// there a leader for those who want one, how long may it take, and the error table at the end.
func unary[Resp any](ctx context.Context, a *API, k kind, do func(context.Context) (Resp, error)) (Resp, error) {
	var none Resp
	began := time.Now()
	resp, err := none, known(ctx)
	if err == nil {
		err = a.hasLeader(ctx)
	}
	if err == nil {
		ctx, stop := a.callContext(ctx)
		resp, err = do(ctx)
		stop()
	}
	err = toStatus(err)
	a.count(k, err)
	a.cfg.Metrics.CallTook("etcd", k.effect(), time.Since(began))
	if err != nil {
		return none, err
	}
	return resp, nil
}

// callContext bounds a unary call, as etcd does, also for a client that would
// wait longer.
func (a *API) callContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, a.cfg.callTimeout(), errCallTimeout)
}

// checkSize refuses what would be too large a log entry.
func (a *API) checkSize(req proto.Message) error {
	if n := proto.Size(req); n > a.cfg.MaxRequestBytes {
		a.cfg.Metrics.LimitHit("request_size")
		return tooLarge(n, a.cfg.MaxRequestBytes)
	}
	return nil
}
