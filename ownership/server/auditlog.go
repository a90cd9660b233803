package server

import (
	"context"
	"errors"
	"path/filepath"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/auditlog"
	"github.com/leasehold-dev/leasehold/ownership/auth"
)

// AuditLogOff as Config.AuditLog means that no log of calls is kept.
const AuditLogOff = "off"

// auditPath is the file of the log of calls, or "". Where nobody says who they are
// none is kept unless it is asked for.
func (c *Config) auditPath() string {
	switch {
	case c.AuditLog == AuditLogOff:
		return ""
	case c.AuditLog == "" && c.secure() && c.DataDir != "":
		return filepath.Join(c.DataDir, "audit.log")
	}
	return c.AuditLog
}

// openAuditLog begins the log of who has called what, where one is kept.
func (s *Server) openAuditLog() (err error) {
	path := s.cfg.auditPath()
	if path == "" {
		return nil
	}
	s.calls, err = auditlog.Open(auditlog.Config{
		Path: path, Server: s.id, SegmentBytes: s.cfg.AuditLogBytes, Segments: s.cfg.AuditLogFiles,
		Lost: s.metrics.AuditLost, Logger: s.log,
	})
	return err
}

// auditRecorder is what auth tells of calls; nil where no log is kept.
func (s *Server) auditRecorder() auth.Recorder {
	if s.calls == nil {
		return nil
	}
	return recorder{s.calls}
}

type recorder struct{ log *auditlog.Log }

func (r recorder) Record(e auth.Entry) { r.log.Record(auditlog.Entry(e)) }

// auditLogClosing bounds what a disk that hangs holds up the end.
const auditLogClosing = 2 * time.Second

// keepAuditLog is the floor of the log: it ends after those who write to it.
func (s *Server) keepAuditLog(ctx context.Context) error {
	<-ctx.Done()
	return s.closeAuditLog(ctx)
}

func (s *Server) closeAuditLog(ctx context.Context) error {
	bound, cancel := context.WithTimeout(context.WithoutCancel(ctx), auditLogClosing)
	defer cancel()
	if err := s.calls.Close(bound); !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	s.log.Error("the end of the audit log could not be written: its disk does not answer")
	return nil
}
