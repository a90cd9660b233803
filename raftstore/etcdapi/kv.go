package etcdapi

import (
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"

	"github.com/leasehold-dev/leasehold/raftstore/mvcc"
	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// kv is etcd's service of that name.
type kv struct {
	pb.UnimplementedKVServer
	*API
}

// Range reads keys: from this server's own state, after it has been made sure
// that nothing acknowledged is missing in it unless the caller does not mind.
func (s *kv) Range(ctx context.Context, r *pb.RangeRequest) (*pb.RangeResponse, error) {
	return unary(ctx, s.API, kindRange, func(ctx context.Context) (*pb.RangeResponse, error) {
		op := rangeOf(r)
		if err := op.Check(); err != nil {
			return nil, err
		}
		var result *mvcc.RangeResult
		revision, err := s.readKeys(ctx, r.Serializable, func(keys *mvcc.Store) (err error) {
			result, err = keys.Range(&op)
			return err
		})
		if err != nil {
			return nil, err
		}
		resp := rangeResponse(result)
		resp.Header = s.header(revision)
		return resp, nil
	})
}

// RangeStream is of a release after the one that this API speaks of.
func (s *kv) RangeStream(*pb.RangeRequest, grpc.ServerStreamingServer[pb.RangeStreamResponse]) error {
	return unsupported("RangeStream", "use Range with limit and the next key")
}

// Put writes a key.
func (s *kv) Put(ctx context.Context, r *pb.PutRequest) (*pb.PutResponse, error) {
	return unary(ctx, s.API, kindPut, func(ctx context.Context) (*pb.PutResponse, error) {
		t := putTxn(r)
		if err := s.checkWrite(&t, r); err != nil {
			return nil, err
		}
		resp := &pb.PutResponse{}
		return resp, s.atLeader(ctx, methodPut, r, resp)
	})
}

// DeleteRange removes keys.
func (s *kv) DeleteRange(ctx context.Context, r *pb.DeleteRangeRequest) (*pb.DeleteRangeResponse, error) {
	return unary(ctx, s.API, kindDelete, func(ctx context.Context) (*pb.DeleteRangeResponse, error) {
		t := deleteTxn(r)
		if err := s.checkWrite(&t, r); err != nil {
			return nil, err
		}
		resp := &pb.DeleteRangeResponse{}
		return resp, s.atLeader(ctx, methodDeleteRange, r, resp)
	})
}

// Txn carries out a transaction. One that cannot write is answered as a read.
func (s *kv) Txn(ctx context.Context, r *pb.TxnRequest) (*pb.TxnResponse, error) {
	return unary(ctx, s.API, kindTxn, func(ctx context.Context) (*pb.TxnResponse, error) {
		t := txnOf(r)
		if err := t.Check(); err != nil {
			return nil, withTxnNumbers(err, r)
		}
		if t.ReadOnly() {
			return s.readTxn(ctx, &t, serializable(r))
		}
		if err := s.checkSize(r); err != nil {
			return nil, err
		}
		resp := &pb.TxnResponse{}
		return resp, s.atLeader(ctx, methodTxn, r, resp)
	})
}

func (s *kv) readTxn(ctx context.Context, t *mvcc.Txn, stale bool) (*pb.TxnResponse, error) {
	var result *mvcc.TxnResult
	revision, err := s.readKeys(ctx, stale, func(keys *mvcc.Store) (err error) {
		result, err = keys.Read(t)
		return err
	})
	if err != nil {
		return nil, err
	}
	resp := &pb.TxnResponse{}
	fillTxn(resp, result)
	resp.Header = s.header(revision)
	return resp, nil
}

// Compact forgets superseded versions. Nothing is left to be done when it has
// answered: physical makes no difference.
func (s *kv) Compact(ctx context.Context, r *pb.CompactionRequest) (*pb.CompactionResponse, error) {
	return unary(ctx, s.API, kindCompact, func(ctx context.Context) (*pb.CompactionResponse, error) {
		resp := &pb.CompactionResponse{}
		return resp, s.atLeader(ctx, methodCompact, r, resp)
	})
}

// checkWrite refuses a write for what can be said without looking at any key.
func (a *API) checkWrite(t *mvcc.Txn, r sized) error {
	if err := t.Check(); err != nil {
		return err
	}
	return a.checkSize(r)
}

// readKeys calls fn with the keys, with all that had been acknowledged before the
// call unless stale will do. fn must not block or keep what it is given; what the
// store returns may be kept.
func (a *API) readKeys(ctx context.Context, stale bool, fn func(*mvcc.Store) error) (revision int64, err error) {
	look := func(s *state.State) {
		if s.Feature() < featureKeys {
			err = errFeature
			return
		}
		err = fn(s.Keys())
		revision = s.Keys().Revision()
	}
	if stale {
		a.cfg.Store.View(look)
		return revision, err
	}
	if rerr := a.read(ctx, look); rerr != nil {
		return 0, rerr
	}
	return revision, err
}

// featureKeys is the level from which on there are keys.
const featureKeys state.Feature = 2

// transact writes a transaction to the log.
func (a *API) transact(ctx context.Context, t mvcc.Txn) (*mvcc.TxnResult, int64, error) {
	if err := a.checkAttached(ctx, &t); err != nil {
		return nil, 0, err
	}
	if err := a.checkQuota(ctx, putBytes(&t)); err != nil {
		return nil, 0, err
	}
	results, err := a.propose(ctx, &state.Transact{Txn: t})
	if err != nil {
		return nil, 0, err
	}
	return results[0].KV, results[0].KVRevision, nil
}

func (a *API) leadPut(ctx context.Context, r *pb.PutRequest, resp *pb.PutResponse) error {
	result, revision, err := a.transact(ctx, putTxn(r))
	if err != nil {
		return err
	}
	fillPut(resp, result.Ops[0].Put)
	resp.Header = a.header(revision)
	return nil
}

func (a *API) leadDeleteRange(ctx context.Context, r *pb.DeleteRangeRequest, resp *pb.DeleteRangeResponse) error {
	result, revision, err := a.transact(ctx, deleteTxn(r))
	if err != nil {
		return err
	}
	fillDelete(resp, result.Ops[0].Delete)
	resp.Header = a.header(revision)
	return nil
}

func (a *API) leadTxn(ctx context.Context, r *pb.TxnRequest, resp *pb.TxnResponse) error {
	result, revision, err := a.transact(ctx, txnOf(r))
	if err != nil {
		return err
	}
	fillTxn(resp, result)
	resp.Header = a.header(revision)
	return nil
}

func (a *API) leadCompact(ctx context.Context, r *pb.CompactionRequest, resp *pb.CompactionResponse) error {
	results, err := a.propose(ctx, &state.Compact{Revision: r.Revision})
	if err != nil {
		return err
	}
	resp.Header = a.header(results[0].KVRevision)
	return nil
}
