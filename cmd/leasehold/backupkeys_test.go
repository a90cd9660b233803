package main

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"
)

// etcd is etcd's own client of the cluster.
func (s *site) etcd() *clientv3.Client {
	s.t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: strings.Split(s.Addrs(), ","), DialTimeout: 10 * time.Second, Logger: zap.NewNop()})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { c.Close() })
	return c
}

// locked takes a lock, gives it back and tells its token.
func (s *site) locked(name string) uint64 {
	s.t.Helper()
	p := startProgram(s.t, "lock", name, "--wait", "1m", "--server", s.Addrs(), "--", "sh", "-c", `echo "$LEASEHOLD_TOKEN"`)
	var token uint64
	if _, err := fmt.Fscan(p.stdout, &token); err != nil {
		s.t.Fatalf("the token of a lock: %v\n%s", err, p.stderr)
	}
	if code := p.code(); code != exitOK {
		s.t.Fatalf("lock %s ended with %d\n%s", name, code, p.stderr)
	}
	return token
}

// Keys, a lease with keys and a lock that is held are saved and restored into a new
// cluster: keys without a lease are there as they were, those with one are gone,
// the lock is free, revisions and tokens go on above the old ones, and a watch
// from an old revision hears that it was compacted. Numbers that were drawn, and
// whose keys were deleted, do not come back.
func TestRestoreKeepsKeysWithoutALease(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1)
	s1, c, ctx := s.Servers()[0], s.etcd(), t.Context()
	eventually(t, s1.GRPCAddr, "1\n", "seq", "n")
	for i := range 3 {
		if _, err := c.Put(ctx, "plain", fmt.Sprint(i)); err != nil {
			t.Fatal(err)
		}
	}
	session, err := concurrency.NewSession(c, concurrency.WithTTL(60))
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	if _, err := c.Put(ctx, "tied", "v", clientv3.WithLease(session.Lease())); err != nil {
		t.Fatal(err)
	}
	held := concurrency.NewMutex(session, "held")
	if err := held.Lock(ctx); err != nil {
		t.Fatal(err)
	}
	token := s.locked("free")
	if out, _ := s.want(exitOK, "seq", "n"); out != "2\n" {
		t.Fatalf("the second number is %q", out)
	}
	s.want(exitOK, "kv", "del", fmt.Sprintf("n/%019d", 2))
	before, err := c.Get(ctx, "plain")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "saved")
	s.want(exitOK, "backup", "save", file)
	s.want(exitOK, "backup", "verify", file)
	// What the backup knows nothing of.
	if _, err := c.Put(ctx, "late", "v"); err != nil {
		t.Fatal(err)
	}
	token = max(token, s.locked("free"))

	s.kill(s1)
	s.restore(s1, file)
	if err := s.Start(s1); err != nil {
		t.Fatal(err)
	}
	s.ready(s1)
	c = s.etcd() // the old one waits longer and longer between dials
	after, err := c.Get(ctx, "plain")
	if err != nil || len(after.Kvs) != 1 {
		t.Fatalf("the key without a lease: %v, %v", after, err)
	}
	if was, is := before.Kvs[0], after.Kvs[0]; string(is.Value) != "2" || is.Version != 3 || is.ModRevision != was.ModRevision || is.CreateRevision != was.CreateRevision {
		t.Errorf("restored as %v, was %v", is, was)
	}
	if all, err := c.Get(ctx, "", clientv3.WithPrefix(), clientv3.WithKeysOnly()); err != nil || all.Count != 2 {
		t.Errorf("keys %v, want the plain one and n/1: %v", all, err)
	}
	if up := after.Header.Revision - before.Header.Revision; up < 1_000_000 {
		t.Errorf("revisions went on %d above the old ones", up)
	}
	if left, err := c.TimeToLive(ctx, session.Lease()); err != nil || left.TTL != -1 {
		t.Errorf("the old lease: %v, %v", left, err)
	}
	for r := range c.Watch(ctx, "plain", clientv3.WithRev(before.Header.Revision+1)) {
		if r.Created && r.Err() == nil {
			continue
		}
		if r.Err() != rpctypes.ErrCompacted || r.CompactRevision <= before.Header.Revision {
			t.Errorf("a watch from an old revision: %+v, %v", r, r.Err())
		}
		break
	}
	for _, name := range []string{"held", "free"} {
		if got := s.locked(name); got <= token {
			t.Errorf("lock %s has token %d, %d was given before", name, got, token)
		}
	}
	if out, _ := s.want(exitOK, "seq", "n"); out != "3\n" {
		t.Errorf("the next number is %q", out)
	}
	out, _ := s.want(exitOK, "kv", "get", "plain", "-o", "json")
	if !json.Valid([]byte(out)) {
		t.Errorf("as JSON: %s", out)
	}
}
