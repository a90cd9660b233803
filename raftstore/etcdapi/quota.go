package etcdapi

import (
	"context"

	"github.com/leasehold-dev/leasehold/raftstore/mvcc"
	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// What a request is reckoned to take besides its bytes.
const (
	leaseBytes = 64
	keyBytes   = 256
)

// checkQuota refuses, on the leader, what would take bytes more than the quota
// leaves, and raises the alarm: from then on every server of the cluster refuses
// such requests until an operator has made room and lowered it. 0 bytes are
// always fine.
func (a *API) checkQuota(ctx context.Context, bytes int64) error {
	if bytes == 0 || a.cfg.QuotaBytes == 0 {
		return nil
	}
	var size int64
	raised := false
	a.cfg.Store.View(func(s *state.State) {
		if s.Feature() >= featureKeys {
			size = s.Keys().Size()
			raised = len(s.Alarms()) > 0
		}
	})
	if size+bytes < a.cfg.QuotaBytes {
		return nil
	}
	if !raised {
		a.log.Warn("no space for keys is left: puts are refused until it is made and the alarm lowered (etcdctl compaction, etcdctl alarm disarm, or a larger --quota-bytes)",
			"size_bytes", size, "request_bytes", bytes, "quota_bytes", a.cfg.QuotaBytes)
		if _, err := a.propose(ctx, &state.SetAlarm{Member: a.self.member, Raised: true}); err != nil {
			return err
		}
	}
	return mvcc.ErrNoSpace
}

// Room is the check of the quota for keys that another API of this server makes:
// bytes are those of a key and its value.
func (a *API) Room(ctx context.Context, bytes int64) error { return a.checkQuota(ctx, keyBytes+bytes) }

// putBytes is what the puts of a transaction may take: those of its larger
// branch.
func putBytes(t *mvcc.Txn) int64 {
	var branches [2]int64
	for i, ops := range [...][]mvcc.Op{t.Success, t.Failure} {
		for j := range ops {
			switch op := &ops[j]; {
			case op.Put != nil:
				branches[i] += int64(keyBytes + len(op.Put.Key) + len(op.Put.Value))
			case op.Txn != nil:
				branches[i] += putBytes(op.Txn)
			}
		}
	}
	return max(branches[0], branches[1])
}
