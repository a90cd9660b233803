package etcdapi

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"hash"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"

	"github.com/leasehold-dev/leasehold/raftstore/backup"
	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// maxSnapshots are made at a time: each holds a copy of the state until its
// reader has taken the last byte.
const maxSnapshots = 4

// Snapshot streams a backup of Leasehold: `leasehold backup verify` and `restore`
// read it, etcd's own tools cannot. The body is filled up with zeros to a
// multiple of 512 bytes and followed by its SHA-256, as etcd's is.
func (s *maintenance) Snapshot(_ *pb.SnapshotRequest, out grpc.ServerStreamingServer[pb.SnapshotResponse]) error {
	err := toStatus(s.snapshot(out))
	s.count(kindMaintenance, err)
	return err
}

func (s *maintenance) snapshot(out grpc.ServerStreamingServer[pb.SnapshotResponse]) error {
	ctx := out.Context()
	if err := cmp.Or(known(ctx), s.hasLeader(ctx)); err != nil {
		return err
	}
	if n := s.saving.Add(1); n > maxSnapshots {
		s.saving.Add(-1)
		return rpctypes.ErrGRPCRequestTooManyRequests
	}
	defer s.saving.Add(-1)
	snapshot, m := s.capture(ctx)
	size, err := backup.Size(m, snapshot)
	if err != nil {
		return err
	}
	w := &snapshotStream{ctx: ctx, out: out, sum: sha256.New(), left: backup.Filled(size)}
	if _, err := backup.Write(w, m, snapshot); err != nil {
		if w.err != nil {
			return w.err
		}
		return err
	}
	if _, err := w.Write(make([]byte, backup.Filled(size)-size)); err != nil {
		return err
	}
	if err := out.Send(&pb.SnapshotResponse{Blob: w.sum.Sum(nil), Version: etcdVersion}); err != nil {
		return err
	}
	s.log.Info("snapshot was sent", "bytes", size, "index", m.Index, "revision", m.Revision)
	return nil
}

// capture takes the state with all that was acknowledged before the call, or,
// when there is nobody who could say what that is, this server's own.
func (s *maintenance) capture(ctx context.Context) (snapshot *state.Snapshot, m backup.Manifest) {
	take := func(st *state.State) { snapshot, m = st.Snapshot(), backup.Describe(st) }
	bounded, stop := context.WithTimeout(ctx, 2*s.cfg.ElectionTimeout)
	err := s.read(bounded, take)
	stop()
	if err != nil {
		s.log.Warn("snapshot of this server's own state: what others have acknowledged may be missing", "cause", err)
		s.cfg.Store.View(take)
	}
	m.Version, m.ServerID, m.StoreID, m.Time = s.cfg.Version, s.cfg.ServerID, s.cfg.StoreID, s.cfg.Wall().UTC()
	return snapshot, m
}

// snapshotStream sends and sums what is written to it.
type snapshotStream struct {
	ctx  context.Context
	out  grpc.ServerStreamingServer[pb.SnapshotResponse]
	sum  hash.Hash
	left int64
	err  error // why the stream ended
}

func (w *snapshotStream) Write(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	w.sum.Write(p)
	w.left -= int64(len(p))
	if w.err = context.Cause(w.ctx); w.err == nil {
		// A message may be looked at after Send has returned.
		w.err = w.out.Send(&pb.SnapshotResponse{Blob: bytes.Clone(p), RemainingBytes: uint64(max(w.left, 0)), Version: etcdVersion})
	}
	if w.err != nil {
		return 0, w.err
	}
	return len(p), nil
}
