package api

import (
	"bytes"
	"context"
	"fmt"

	"google.golang.org/grpc"

	"github.com/leasehold-dev/leasehold/ownership/auth"
	pb "github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"github.com/leasehold-dev/leasehold/raftstore/access"
	"github.com/leasehold-dev/leasehold/raftstore/backup"
	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// maxBackups are made at a time: each holds a copy of the lease tables until
// its reader has taken the last byte.
const maxBackups = 4

// SaveBackup streams the whole state of the asked server.
func (a *cluster) SaveBackup(r *pb.SaveBackupRequest, out grpc.ServerStreamingServer[pb.SaveBackupResponse]) error {
	return a.saveBackup(out.Context(), r, out.Send)
}

// saveBackup captures the state after a linearizable read, so that everything
// acknowledged before the call is in it, and streams it while the state goes on.
func (a *cluster) saveBackup(ctx context.Context, _ *pb.SaveBackupRequest, send func(*pb.SaveBackupResponse) error) error {
	if id := access.FromContext(ctx); !id.Scope.AllKeys() {
		return auth.Denied(id, "a backup has all keys, and wants a caller who may see them")
	}
	if n := a.saving.Add(1); n > maxBackups {
		a.saving.Add(-1)
		return failf(pb.ReasonConflict, "server %s is making %d backups already: try again when one is done", a.cfg.ServerID, maxBackups)
	}
	defer a.saving.Add(-1)
	snapshot, m, err := a.capture(ctx)
	if err != nil {
		return err
	}
	size, err := backup.Size(m, snapshot)
	if err != nil {
		return err
	}
	w := &backupStream{ctx: ctx, send: send, total: size}
	if _, err := backup.Write(w, m, snapshot); err != nil {
		if w.err != nil {
			return w.err
		}
		return err
	}
	a.log.Info("backup was sent", "bytes", size, "index", m.Index, "revision", m.Revision)
	if a.cfg.BackupDone != nil {
		a.cfg.BackupDone(a.cfg.Wall())
	}
	return nil
}

// capture takes the state as of now. It waits for a read, not for a call's
// whole time, which a stream does not have.
func (a *cluster) capture(ctx context.Context) (snapshot *state.Snapshot, m backup.Manifest, err error) {
	ctx, cancel := context.WithTimeout(ctx, a.cfg.CallTimeout)
	defer cancel()
	err = a.cfg.Store.Read(ctx, func(s *state.State) { snapshot, m = s.Snapshot(), backup.Describe(s) })
	m.Version, m.ServerID, m.StoreID, m.Time = a.cfg.Version, a.cfg.ServerID, a.cfg.StoreID, a.cfg.Wall().UTC()
	if err == nil && m.ClusterID == "" {
		err = fmt.Errorf("save backup: %w", a.notLeader())
	}
	return snapshot, m, err
}

// backupStream sends what is written to it, a message for each part.
type backupStream struct {
	ctx   context.Context
	send  func(*pb.SaveBackupResponse) error
	total int64
	err   error // why the stream ended
}

func (w *backupStream) Write(p []byte) (int, error) {
	if w.err = context.Cause(w.ctx); w.err == nil {
		// A message may be looked at after Send has returned.
		w.err = w.send(&pb.SaveBackupResponse{Data: bytes.Clone(p), TotalBytes: w.total})
	}
	if w.err != nil {
		return 0, w.err
	}
	return len(p), nil
}
