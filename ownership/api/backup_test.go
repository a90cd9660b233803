package api

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"

	pb "github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"github.com/leasehold-dev/leasehold/raftstore/backup"
)

// saveTo reads a whole backup from any server.
func saveTo(t *testing.T, conn *grpc.ClientConn, w io.Writer) {
	t.Helper()
	stream, err := pb.NewClusterServiceClient(conn).SaveBackup(t.Context(), &pb.SaveBackupRequest{})
	if err != nil {
		t.Fatal(err)
	}
	total, told := int64(0), int64(0)
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		told = m.GetTotalBytes()
		n, _ := w.Write(m.GetData())
		total += int64(n)
	}
	if total != told || total == 0 {
		t.Errorf("%d bytes came, %d were foretold", total, told)
	}
}

// Everything that was acknowledged before the call is in a backup, whichever
// server is asked, and it can be read back while workers go on.
func TestBackupHasEverythingAcknowledgedBefore(t *testing.T) {
	var done atomic.Int32
	c := startCluster(t, 3, func(cfg *Config) {
		cfg.Version = "v9"
		cfg.BackupDone = func(at time.Time) {
			if !at.IsZero() {
				done.Add(1)
			}
		}
	})
	leader, follower := c.leader(t), c.follower(t)
	conn := follower.dial(t)
	createKeyspace(t, conn, "orders", 8)
	w := openWorker(t, conn, 11, "w1", "orders")
	w.holds(8)
	for i := range 5 {
		name := fmt.Sprintf("k%d", i)
		createKeyspace(t, conn, name, 3)
		var file bytes.Buffer
		saveTo(t, conn, &file)
		s, m, err := backup.Load(&file)
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := s.KeyspaceByName(name); !ok {
			t.Errorf("%s was acknowledged before and is missing", name)
		}
		if m.Version != "v9" || m.ServerID != leader.id || m.ClusterID == "" || m.Counts.Leases != 8 || m.Counts.Sessions != 1 || m.Time.IsZero() || m.Offline {
			t.Errorf("manifest %+v", m)
		}
	}
	eventually(t, "five backups that were noted", func() bool { return done.Load() == 5 })
}

// Who stops reading leaves nothing behind, and only so many read at a time.
func TestBrokenOffBackupIsNone(t *testing.T) {
	var done atomic.Int32
	c := startCluster(t, 1, func(cfg *Config) { cfg.BackupDone = func(time.Time) { done.Add(1) } })
	leader := c.leader(t)
	conn := leader.dial(t)
	createKeyspace(t, conn, "large", 1<<20) // more than a connection has under way
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for range maxBackups {
		stream, err := pb.NewClusterServiceClient(conn).SaveBackup(ctx, &pb.SaveBackupRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := stream.Recv(); err != nil {
			t.Fatal(err)
		}
	}
	stream, err := pb.NewClusterServiceClient(conn).SaveBackup(t.Context(), &pb.SaveBackupRequest{})
	if err == nil {
		_, err = stream.Recv()
	}
	if d := pb.DetailOf(err); d.GetReason() != pb.ReasonConflict {
		t.Errorf("one more than %d at a time: %v", maxBackups, err)
	}
	cancel()
	eventually(t, "all broken off", func() bool { return leader.api.saving.Load() == 0 })
	if n := done.Load(); n != 0 {
		t.Errorf("%d backups that were broken off count as made", n)
	}
	var file bytes.Buffer
	saveTo(t, conn, &file)
	if _, err := backup.Check(&file); err != nil {
		t.Error(err)
	}
}
