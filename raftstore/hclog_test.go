package raftstore

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
)

func TestRepeatedWarningsAreHeldBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var out bytes.Buffer
		a := newLogAdapter(slog.New(slog.NewTextHandler(&out, nil)), "raft")
		for range 100 {
			a.Error("failed to heartbeat to", "peer", "s2", "error", errors.New("refused"))
			a.Error("failed to heartbeat to", "peer", "s3", "backoff time", time.Second)
			a.Info("entering follower state", "follower", hclog.Fmt("%v", a))
		}
		if n := strings.Count(out.String(), "\n"); n != 2 {
			t.Errorf("%d lines:\n%s", n, out.String())
		}
		out.Reset()
		time.Sleep(repeatEvery)
		a.Error("failed to heartbeat to", "peer", "s2", "error", errors.New("refused"))
		if !strings.Contains(out.String(), "repeated=99") || !strings.Contains(out.String(), "raft: failed") || !strings.Contains(out.String(), "error=refused") {
			t.Errorf("ten seconds later: %s", out.String())
		}
	})
}
