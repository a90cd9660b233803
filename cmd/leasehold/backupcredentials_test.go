package main

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-dev/leasehold/raftstore/access"
	"github.com/leasehold-dev/leasehold/raftstore/backup"
	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// A restore says what it brings back that somebody may have wanted to be gone.
func TestRestoreTellsOfCredentials(t *testing.T) {
	s := state.New()
	results := s.Apply(1, 1, &state.Batch{Commands: []state.Command{
		&state.Bootstrap{ClusterID: "c0ffee", FirstToken: 1 << 40},
		&state.RaiseFeature{Term: 1, Level: state.FeatureAccess},
		&state.PutCredential{Credential: access.Credential{ID: "abc123abc123", Name: "ci", Role: access.Reader, Created: time.UnixMilli(1)}},
		&state.SetKeyring{Keys: [][]byte{make([]byte, 32)}},
	}})
	for _, r := range results {
		if r.Err != nil {
			t.Fatal(r.Err)
		}
	}
	m := backup.Describe(s)
	m.Version, m.ServerID, m.Time = "v0.1.0", "s1", time.Date(2026, 11, 30, 1, 2, 3, 0, time.UTC)
	var b bytes.Buffer
	if _, err := backup.Write(&b, m, s.Snapshot()); err != nil {
		t.Fatal(err)
	}
	file := put(t, filepath.Join(t.TempDir(), "saved"), b.Bytes())
	for _, format := range []string{"table", "json"} {
		out, _ := (&cli{}).want(t, exitOK, "backup", "restore", file, "--data-dir", filepath.Join(t.TempDir(), "s1"), "--id", "s1", "--raft-addr", "10.0.0.1:7401", "--yes", "-o", format)
		if !strings.Contains(out, "1 credential is valid again") && !strings.Contains(out, `"credentials": 1`) {
			t.Errorf("-o %s says nothing of credentials:\n%s", format, out)
		}
	}
}
