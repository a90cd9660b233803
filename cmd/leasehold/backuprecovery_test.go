package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-dev/leasehold/cmd/leasehold/internal/cluster"
	"github.com/leasehold-dev/leasehold/ownership/client"
	"github.com/leasehold-dev/leasehold/ownership/fence"
	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
)

// restore makes the server x of a new cluster from a file, in place of what it
// had, which stays beside it.
func (s *site) restore(x *cluster.Server, file string, args ...string) restored {
	s.t.Helper()
	if err := os.Rename(s.data(x), s.data(x)+".old"); err != nil {
		s.t.Fatal(err)
	}
	out, _ := s.want(exitOK, append([]string{"backup", "restore", file, "--data-dir", s.data(x), "--id", x.ID, "--raft-addr", x.RaftAddr, "--yes", "-o", "json"}, args...)...)
	var r restored
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		s.t.Fatal(err)
	}
	return r
}

func highest(stamps []fence.Stamp) (h fence.Token) {
	for _, x := range stamps {
		h = max(h, x.Token)
	}
	return h
}

// watch asks for events of the old cluster and returns why there are none.
func (s *site) watch(r *leaseholdv1.WatchEventsRequest) string {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), 30*time.Second)
	defer cancel()
	stream, err := s.client.Events().WatchEvents(ctx, r)
	for err == nil { // the first message only says where it stands
		_, err = stream.Recv()
	}
	return client.Detail(err).GetReason()
}

// Workers of the old cluster that find the new one at the same address join it:
// they get nothing strict before their old leases have run out, go on with
// higher tokens than they ever had, also those granted after the backup was
// made, and the guard lets nobody of before in again.
func TestWorkersGoOnAfterARestore(t *testing.T) {
	t.Parallel()
	const hold = 12 * time.Second // what is looked at meanwhile takes its time
	s := newSite(t, 1)
	s1 := s.Servers()[0]
	for ks, takeover := range map[string]leaseholdv1.Takeover{"orders": leaseholdv1.Takeover_TAKEOVER_STRICT, "fenced": leaseholdv1.Takeover_TAKEOVER_FENCED} {
		if err := s.keyspace(ks, 8, 3*time.Second, takeover); err != nil {
			t.Fatal(err)
		}
	}
	m := newWatchman(t)
	m.work(s.Addrs(), "w1", "orders", "fenced")
	m.work(s.Addrs(), "w2", "orders", "fenced")
	m.until("orders", 8)
	m.until("fenced", 8)
	file := filepath.Join(t.TempDir(), "saved")
	s.want(exitOK, "backup", "save", file)
	for p := range 4 { // so that there are leases that the backup knows nothing of
		s.want(exitOK, "partitions", "move", "orders", fmt.Sprint(p), "--to", "w1")
	}
	m.until("orders", 8)
	old := s.status(s1)
	before, _ := m.since(0)
	high := highest(before)
	n := len(before)

	s.kill(s1)
	r := s.restore(s1, file, "--strict-hold", hold.String())
	if r.LastToken < uint64(high) || r.StrictHoldMs != hold.Milliseconds() {
		t.Errorf("restored %+v, token %d was granted", r, high)
	}
	begun := time.Now()
	if err := s.Start(s1); err != nil {
		t.Fatal(err)
	}
	s.ready(s1)
	if st := s.status(s1); st.GetClusterId() == old.GetClusterId() || st.GetClusterId() != r.ClusterID || st.GetStrictHoldMs() <= 0 {
		t.Errorf("cluster %s, was %s, restored %s; hold %d ms", st.GetClusterId(), old.GetClusterId(), r.ClusterID, st.GetStrictHoldMs())
	}
	if out, _ := s.want(exitOK, "partitions", "show", "orders", "1"); !strings.Contains(out, "restored: waits until") {
		t.Errorf("why is it unowned? %s", out)
	}
	if out, _ := s.want(exitOK, "partitions", "show", "orders/1", "--why"); !strings.Contains(out, "\nrestored: waits until") {
		t.Errorf("restored, the reason is given as\n%s", out)
	}
	if out, _ := s.want(exitOK, "status"); !strings.Contains(out, "nothing strict is granted for another") {
		t.Errorf("status: %s", out)
	}
	m.work(s.Addrs(), "w3", "fenced") // it has no old session to wait for
	if reason := s.watch(&leaseholdv1.WatchEventsRequest{AfterRevision: old.GetRevision(), ClusterId: old.GetClusterId()}); reason != leaseholdv1.ReasonWrongCluster {
		t.Errorf("a watch of the old cluster: %s", reason)
	}
	if reason := s.watch(&leaseholdv1.WatchEventsRequest{AfterRevision: old.GetRevision()}); reason != leaseholdv1.ReasonCompacted {
		t.Errorf("a watch from an old revision: %s", reason)
	}

	count := func(ks string) (c int, first time.Time) {
		stamps, at := m.since(n)
		for i, x := range stamps {
			if x.Keyspace == ks {
				if c++; c == 1 {
					first = at[i]
				}
			}
		}
		return c, first
	}
	waitFor(t, "all strict partitions granted anew", func() bool { c, _ := count("orders"); return c >= 8 })
	m.until("orders", 8)
	m.until("fenced", 8)
	_, strict := count("orders")
	if took := strict.Sub(begun); took < hold {
		t.Errorf("the first strict grant came %v after the start, the hold is %v", took, hold)
	}
	if _, fenced := count("fenced"); !fenced.Before(strict) {
		t.Errorf("the first fenced grant came %v after the first strict one", fenced.Sub(strict))
	}
	after, _ := m.since(n)
	for _, x := range after {
		if x.Token <= high {
			t.Errorf("%v was granted after token %d", x, high)
		}
	}
	for _, x := range before {
		m.zombie(x)
	}
}

// Quorum lost for good: of three servers two lose their disks. The survivor's
// directory becomes a new cluster with all that was acknowledged and that it
// had, higher tokens, and two new servers.
func TestQuorumLostForGood(t *testing.T) {
	t.Parallel()
	s := newSite(t, 3)
	if err := s.keyspace("orders", 8, 3*time.Second, leaseholdv1.Takeover_TAKEOVER_STRICT); err != nil {
		t.Fatal(err)
	}
	m := newWatchman(t)
	m.work(s.Addrs(), "w1", "orders")
	m.work(s.Addrs(), "w2", "orders")
	m.until("orders", 8)
	const load = 60
	for i := range load {
		if err := s.keyspace(name(i), 4, 3*time.Second, leaseholdv1.Takeover_TAKEOVER_FENCED); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	leader, err := s.Leader(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var survivor *cluster.Server
	for _, x := range s.Servers() {
		if x != leader {
			survivor = x
		}
	}
	var index uint64
	for _, x := range s.Servers() { // another may lead by now
		index = max(index, s.status(x).GetCommitIndex())
	}
	waitFor(t, "copy on the survivor", func() bool { return s.status(survivor).GetAppliedIndex() >= index })
	before, _ := m.since(0)
	for _, x := range s.Servers() {
		s.kill(x)
	}
	for _, x := range s.Servers() {
		if x != survivor {
			if err := s.Wipe(x); err != nil {
				t.Fatal(err)
			}
		}
	}

	out, _ := s.want(exitOK, "backup", "inspect", "--data-dir", s.data(survivor), "-o", "json")
	var in inspected
	if err := json.Unmarshal([]byte(out), &in); err != nil || in.Manifest.Index < index || in.Manifest.Missing != "" {
		t.Errorf("index %d, want %d at least; missing %q (%v)", in.Manifest.Index, index, in.Manifest.Missing, err)
	}
	file := filepath.Join(t.TempDir(), "rescue")
	s.want(exitOK, "backup", "save", file, "--data-dir", s.data(survivor))
	s.want(exitOK, "backup", "verify", file)
	r := s.restore(survivor, file)
	high := highest(before)
	if r.LastToken < uint64(high) {
		t.Errorf("tokens go on above %d, %d was granted", r.LastToken, high)
	}
	if err := s.Start(survivor); err != nil {
		t.Fatal(err)
	}
	s.ready(survivor)
	list, _ := (&cli{}).want(t, exitOK, "keyspace", "ls", "-o", "json", "--server", survivor.GRPCAddr)
	for i := range load {
		if !strings.Contains(list, `"`+name(i)+`"`) {
			t.Errorf("%s was acknowledged and is missing", name(i))
		}
	}

	for _, x := range s.Servers() {
		if x == survivor {
			continue
		}
		if err := s.Start(x); err != nil {
			t.Fatal(err)
		}
		added := &cli{}
		waitFor(t, "addition of "+x.ID, func() bool {
			return added.run(t, "raft", "add", x.ID, "--grpc-addr", x.GRPCAddr, "--server", survivor.GRPCAddr) == exitOK
		})
	}
	if err := s.AwaitVoters(ctx); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "all partitions granted anew", func() bool { return m.grants() >= len(before)+8 })
	m.until("orders", 8)
	after, _ := m.since(len(before))
	for _, x := range after {
		if x.Token <= high {
			t.Errorf("%v was granted after token %d", x, high)
		}
	}
	for _, x := range before {
		m.zombie(x)
	}
	// It is a whole cluster again: the loss of any one server is no loss.
	s.kill(survivor)
	n := m.grants()
	if err := s.keyspace("more", 1, 3*time.Second, leaseholdv1.Takeover_TAKEOVER_STRICT); err != nil {
		t.Error(err)
	}
	if m.grants() != n {
		t.Errorf("%d grants by the loss of one server of three", m.grants()-n)
	}
}
