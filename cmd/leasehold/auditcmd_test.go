package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/leasehold-dev/leasehold/ownership/auditlog"
	"github.com/leasehold-dev/leasehold/raftstore/access"
)

func TestAuditVerify(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	l, err := auditlog.Open(auditlog.Config{Path: path, Server: "s1"})
	if err != nil {
		t.Fatal(err)
	}
	l.Record(auditlog.Entry{Identity: access.Identity{Source: access.Certificate, Role: access.Operator, Name: "anna", Serial: "0a"}, Method: "/x/Drain", Target: "w1", Outcome: "ok"})
	if err := l.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	var c cli
	out, _ := c.want(t, exitOK, "audit", "verify", path)
	if !strings.Contains(out, "server s1 is good: lines 1 to 4, ") {
		t.Errorf("it says %q", out)
	}
	c = cli{}
	out, _ = c.want(t, exitOK, "audit", "verify", path, "-o", "json")
	var chains []auditChain
	if err := json.Unmarshal([]byte(out), &chains); err != nil || len(chains) != 1 || chains[0].Last != 4 {
		t.Fatalf("%s: %v", out, err)
	}
	c = cli{}
	c.want(t, exitOK, "audit", "verify", path, "--has", chains[0].Hash)

	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	put(t, path, text[:bytes.LastIndexByte(text[:len(text)-1], '\n')+1])
	c = cli{}
	if _, said := c.want(t, exitFailed, "audit", "verify", path, "--has", chains[0].Hash); !strings.Contains(said, "cut off") {
		t.Errorf("the last line is gone: %q", said)
	}
	put(t, path, bytes.Replace(text, []byte("operator/anna"), []byte("operator/otto"), 1))
	c = cli{}
	if _, said := c.want(t, exitFailed, "audit", "verify", path); !strings.Contains(said, path+": line 3 was changed") {
		t.Errorf("line 3 was changed: %q", said)
	}
}
