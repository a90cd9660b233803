package server

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
)

func (c *cluster) add(at int, id, grpcAddr string) error {
	return c.steady(func() error {
		_, err := c.api(at).AddPeer(c.t.Context(), &leaseholdv1.AddPeerRequest{ServerId: id, GrpcAddr: grpcAddr})
		return err
	})
}

func (c *cluster) remove(at int, id string) error {
	return c.steady(func() error {
		_, err := c.api(at).RemovePeer(c.t.Context(), &leaseholdv1.RemovePeerRequest{ServerId: id})
		return err
	})
}

// peer is one server of the group as server at knows it.
func (c *cluster) peer(at int, id string) (p *leaseholdv1.Peer) {
	c.t.Helper()
	for _, item := range c.peers(at) {
		if item.GetServerId() == id {
			p = item
		}
	}
	return p
}

func names(prefix string, n int) (out []string) {
	for i := range n {
		out = append(out, fmt.Sprintf("%s%d", prefix, i))
	}
	return out
}

// O-42: the data directory of a server is lost. Started empty under its old id
// it takes everything in without a vote, then takes the place of its former
// self; nobody does anything.
func TestDataDirectoryWiped(t *testing.T) {
	t.Parallel()
	c := freshCluster(t, 3)
	c.startAll()
	all := names("k", 30)
	c.put(all...)
	old := c.status(1).GetStoreId()
	c.stopServer(1)
	c.wipe(1)
	c.start(1)
	c.says(1, "belongs to a cluster already")
	lead := c.leader()
	beside := func() bool { g := c.group(lead); return g == "s1 s2 (s2) s3" || g == "s1 s2 s3 (s2)" }
	eventually(t, 20*time.Second, "it is in the group beside its former self", beside)
	if why := c.why(1); (why == "ready" || strings.Contains(why, "removed")) && beside() {
		t.Errorf("without a vote it says %q", why)
	}
	eventually(t, 30*time.Second, "it is the voter s2", func() bool { return c.group(lead) == "s1 s3 s2" || c.group(lead) == "s1 s2 s3" })
	if p := c.peer(lead, "s2"); p.GetStoreId() == old || p.GetStoreId() != c.status(1).GetStoreId() {
		t.Errorf("s2 has data directory %s in the group and %s itself; the lost one was %s", p.GetStoreId(), c.status(1).GetStoreId(), old)
	}
	c.ready()
	c.has(1, all...)
}

// O-42: two of three are wiped. The one that is left cannot know what they
// voted for, and nobody leads; its data is still there.
func TestTwoOfThreeWiped(t *testing.T) {
	t.Parallel()
	c := freshCluster(t, 3)
	c.startAll()
	c.put("a")
	c.stopAll()
	c.wipe(1)
	c.wipe(2)
	for i := range c.configs {
		c.start(i)
	}
	c.says(1, "s1 belongs to a cluster already")
	c.says(2, "s1 belongs to a cluster already")
	never(t, 3*time.Second, "somebody leads", func() bool {
		for _, r := range c.running {
			if r.store.IsLeader() {
				return true
			}
		}
		return false
	})
	if c.running[1].store.HasState() || c.running[2].store.HasState() {
		t.Error("an empty server has got state without a quorum")
	}
}

// O-47: a removed server is left running and then restarted: no election, no
// new term, it says what it is, and being seen does not bring it back.
func TestRemovedServerLeftRunning(t *testing.T) {
	t.Parallel()
	c := calm(t, 3)
	c.startAll()
	lead := c.leader()
	gone := (lead + 1) % 3
	id := c.configs[gone].ID
	if err := c.remove(gone, id); err != nil { // at the follower itself: it sends the call on
		t.Fatal(err)
	}
	rest := strings.TrimSpace(strings.ReplaceAll(strings.ReplaceAll("s1 s2 s3", id, ""), "  ", " "))
	term := c.status(lead).GetTerm()
	undisturbed := func(when string) {
		t.Helper()
		never(t, 3*time.Second, when+": the group has changed", func() bool {
			return c.group(lead) != rest || c.status(lead).GetTerm() != term || !c.running[lead].store.IsLeader()
		})
	}
	c.says(gone, "removed from the cluster")
	undisturbed("left running")
	c.stopServer(gone)
	c.start(gone)
	c.says(gone, "removed from the cluster")
	undisturbed("restarted")
	wantRefusal(t, "remove again", c.remove(lead, id), leaseholdv1.ReasonNotFound)
	wantRefusal(t, "add with its data", c.add(lead, id, ""), leaseholdv1.ReasonConflict, "empty its data directory")
	c.stopServer(gone)
	c.wipe(gone)
	c.start(gone)
	c.says(gone, "leasehold raft add "+id)
	c.seen(id)
	undisturbed("empty") // its name is not in the group any more
	if err := c.add(lead, id, ""); err != nil {
		t.Fatal(err)
	}
	c.says(gone, "no vote yet")
}

// O-48: a server that is added and never starts, or dies before it has caught
// up, holds nobody up, and can be taken out again.
func TestVoterAddedThatNeverStarts(t *testing.T) {
	t.Parallel()
	c := freshCluster(t, 1)
	c.configs[0].ElectionTimeout = election(2)
	c.startAll()
	wantRefusal(t, "nobody there", c.add(0, "s2", "127.0.0.1:1"), leaseholdv1.ReasonConflict, "does not answer at 127.0.0.1:1")
	wantRefusal(t, "not in gossip", c.add(0, "s2", ""), leaseholdv1.ReasonNotFound, "--grpc-addr")
	wantRefusal(t, "no address", c.add(0, "s2", "10.0.0.1"), leaseholdv1.ReasonInvalid, "host:port")
	two := c.join("s2")
	c.start(two)
	wantRefusal(t, "another name", c.add(0, "s3", c.configs[two].GRPCAddr), leaseholdv1.ReasonConflict, "is server s2, not s3")
	c.says(two, "leasehold raft add s2")
	c.seen("s2")
	if err := c.add(0, "s2", ""); err != nil {
		t.Fatal(err)
	}
	if err := c.add(0, "s2", ""); err != nil { // again is as good as once
		t.Fatal(err)
	}
	c.vanish(two)
	if got := c.group(0); got != "s1 (s2)" {
		t.Fatalf("group %q, want a server without a vote", got)
	}
	c.put("a", "b")
	eventually(t, 10*time.Second, "the leader misses it", func() bool { return c.peer(0, "s2").GetLastContactMs() > 2*election(2).Milliseconds() })
	_, err := c.api(0).PromotePeer(t.Context(), &leaseholdv1.PromotePeerRequest{ServerId: "s2"})
	wantRefusal(t, "promote a dead one", err, leaseholdv1.ReasonConflict)
	if err := c.remove(0, "s2"); err != nil {
		t.Fatal(err)
	}
	c.put("c")
	wantRefusal(t, "remove the last voter", c.remove(0, "s1"), leaseholdv1.ReasonConflict, "only voter")
}

// Two dead newcomers beside three voters change nothing about the quorum.
func TestTwoDeadNewcomersBesideThree(t *testing.T) {
	t.Parallel()
	c := freshCluster(t, 3)
	c.startAll()
	for _, id := range []string{"s4", "s5"} {
		i := c.join(id)
		c.start(i)
		if err := c.add(0, id, c.configs[i].GRPCAddr); err != nil {
			t.Fatal(err)
		}
		c.vanish(i)
	}
	c.put("a")
	c.stopServer(c.leader())
	c.leader()
	c.put("b")
}

// A server is added, promoted by itself, leads, and is removed while it leads:
// it hands over first.
func TestAddPromoteTransferRemove(t *testing.T) {
	t.Parallel()
	c := freshCluster(t, 3)
	c.startAll()
	c.put("a")
	four := c.join("s4")
	c.start(four)
	c.says(four, "ask an operator: leasehold raft add s4")
	c.seen("s4")
	lead := c.leader()
	if err := c.add((lead+1)%3, "s4", ""); err != nil {
		t.Fatal(err)
	}
	c.says(four, "no vote yet")
	eventually(t, 10*time.Second, "the leader says what it waits for", func() bool {
		return strings.Contains(c.peer(c.leader(), "s4").GetNote(), "then a voter")
	})
	c.ready()
	if got := c.group(four); got != "s1 s2 s3 s4" {
		t.Errorf("group %q", got)
	}
	c.has(four, "a")
	transfer := func(at int, to string) (string, error) {
		var r *leaseholdv1.TransferLeadershipResponse
		err := c.steady(func() (err error) {
			r, err = c.api(at).TransferLeadership(t.Context(), &leaseholdv1.TransferLeadershipRequest{ServerId: to})
			return err
		})
		return r.GetLeaderId(), err
	}
	if id, err := transfer(0, "s4"); err != nil || id != "s4" || c.leader() != four {
		t.Fatalf("transfer to s4: %q, %v, leader %d", id, err, c.leader())
	}
	if id, err := transfer(0, "s4"); err != nil || id != "s4" {
		t.Errorf("transfer to the leader: %q, %v", id, err)
	}
	_, err := transfer(0, "s9")
	wantRefusal(t, "transfer to nobody", err, leaseholdv1.ReasonNotFound)
	if err := c.remove(1, "s4"); err != nil {
		t.Fatalf("remove the leader: %v", err)
	}
	if lead := c.leader(); lead == four || c.group(lead) != "s1 s2 s3" {
		t.Errorf("group %q under %d", c.group(lead), lead)
	}
	if id, err := transfer(0, ""); err != nil || id == "" || id != c.configs[c.leader()].ID {
		t.Errorf("transfer to anybody: %q, %v", id, err)
	}
}

// A removal that would leave no majority is refused unless it is forced.
func TestRemoveThatWouldLoseTheQuorum(t *testing.T) {
	t.Parallel()
	c := calm(t, 3)
	c.startAll()
	lead := c.leader()
	dead, other := (lead+1)%3, (lead+2)%3
	c.vanish(dead)
	eventually(t, 10*time.Second, "the leader misses it", func() bool {
		return c.peer(lead, c.configs[dead].ID).GetLastContactMs() > 4*c.configs[lead].ElectionTimeout.Milliseconds()
	})
	for _, at := range []int{other, lead} { // the leader, too, sees it before it hands over
		wantRefusal(t, "remove a live one", c.remove(lead, c.configs[at].ID), leaseholdv1.ReasonConflict, "only 1 of 2 voters answer", "--force")
	}
	if c.leader() != lead {
		t.Error("the leadership was handed over for nothing")
	}
	if err := c.remove(lead, c.configs[dead].ID); err != nil {
		t.Errorf("remove the dead one: %v", err)
	}
	c.put("a")
}

// O-44: a server with a past of its own is not let in.
func TestServersWithSeparateHistories(t *testing.T) {
	t.Parallel()
	a, b := freshCluster(t, 1), freshCluster(t, 1)
	b.configs[0].ID = "b1"
	a.startAll()
	b.startAll()
	a.put("x")
	b.put("y")
	ours, theirs := a.oneCluster(), b.oneCluster()
	wantRefusal(t, "add", a.add(0, "b1", b.configs[0].GRPCAddr), leaseholdv1.ReasonWrongCluster, ours, theirs, "empty its data directory")
	a.put("x2")
	b.put("y2")
	a.has(0, "x", "x2")
	b.has(0, "y", "y2")
}

// A server of three with the data of one cluster is started among the servers
// of another: it stays out, and says why.
func TestDataOfAnotherCluster(t *testing.T) {
	t.Parallel()
	a, b := freshCluster(t, 3), freshCluster(t, 3)
	a.startAll()
	b.startAll()
	theirs := b.oneCluster()
	b.stopAll()
	b.configs[2].Join = a.gossip
	b.start(2)
	b.says(2, "belong to another cluster")
	b.says(2, theirs)
	never(t, 500*time.Millisecond, "it is let in", func() bool { return a.group(0) != "s1 s2 s3" || b.why(2) == "ready" })
	a.put("x")
}

// O-31: a second server under the id of a running one ends, naming id and both
// addresses; the cluster does not notice.
func TestTwoLiveServersOfOneID(t *testing.T) {
	t.Parallel()
	c := calm(t, 3)
	c.startAll()
	c.put("a")
	lead, term := c.leader(), c.status(0).GetTerm()
	for _, at := range []int{lead, (lead + 1) % 3} {
		id := c.configs[at].ID
		twin := c.join(id)
		c.configs[twin].BootstrapExpect = 3 // as in the other's unit file
		c.start(twin)
		r := c.running[twin]
		c.running[twin] = nil
		select {
		case err := <-r.done:
			var want *TwinError
			if !errors.As(err, &want) || want.ID != id || want.Other != c.configs[at].GRPCAddr || want.Addr != c.configs[twin].GRPCAddr {
				t.Errorf("second %s ended with %v", id, err)
			}
		case <-time.After(20 * time.Second):
			_, why := r.Readiness()
			t.Errorf("second %s still runs: %s", id, why)
			r.stop()
			<-r.done
		}
		never(t, time.Second, "the cluster has noticed", func() bool {
			return c.status(lead).GetTerm() != term || c.group(lead) != "s1 s2 s3" || c.why(at) != "ready" || c.peer((at+1)%3, id).GetGossip() != "alive"
		})
	}
	c.put("b")
}

// O-32: a server is killed and comes back at once at other addresses. It is a
// healthy voter again within seconds, and everybody knows where.
func TestSameNameOnANewAddressAfterACrash(t *testing.T) {
	t.Parallel()
	c := freshCluster(t, 3)
	c.startAll()
	for _, at := range []int{(c.leader() + 1) % 3, c.leader()} {
		c.vanish(at)
		c.moved(at)
		began := time.Now()
		c.start(at)
		c.ready()
		t.Logf("%s ready after %v", c.configs[at].ID, time.Since(began).Round(time.Millisecond))
		for i := range c.configs {
			eventually(t, 20*time.Second, "all know the new address", func() bool {
				return c.peer(i, c.configs[at].ID).GetRaftAddr() == c.configs[at].RaftAddr && c.group(i) == "s1 s2 s3"
			})
		}
		c.put(fmt.Sprintf("k%d", at))
	}
}

// O-40: all servers come back at new addresses at once. By themselves they have
// a leader and all data.
func TestEveryServerGetsANewAddress(t *testing.T) {
	t.Parallel()
	c := freshCluster(t, 3)
	c.startAll()
	all := names("k", 20)
	c.put(all...)
	cluster := c.oneCluster()
	c.stopAll()
	for i := range c.configs {
		c.moved(i)
	}
	for i := range c.configs {
		c.configs[i].Join = c.gossip
	}
	c.startAll()
	if got := c.oneCluster(); got != cluster {
		t.Errorf("cluster %s, was %s", got, cluster)
	}
	for i := range c.configs {
		c.has(i, all...)
		eventually(t, 20*time.Second, "the new addresses are written down", func() bool {
			for j := range c.configs {
				if c.peer(i, c.configs[j].ID).GetRaftAddr() != c.configs[j].RaftAddr {
					return false
				}
			}
			return true
		})
	}
	c.put("after")
}

// O-53: the servers are restarted one after the other, as soon as each is ready
// again, under writes. Nothing acknowledged is missing, and no leader changes
// but by a restart.
func TestRollingRestartUnderWrites(t *testing.T) {
	t.Parallel()
	c := calm(t, 3)
	c.startAll()
	ctx, cancel := context.WithCancel(t.Context())
	cl := c.client()
	written := make(chan []string, 1)
	go func() {
		var acked []string
		for n := 0; ctx.Err() == nil; n++ {
			name := fmt.Sprintf("k%d", n)
			_, err := cl.Keyspaces().CreateKeyspace(ctx, &leaseholdv1.CreateKeyspaceRequest{Name: name, Partitions: 1, TtlMs: 10_000})
			if err == nil {
				acked = append(acked, name)
			}
		}
		written <- acked
	}()
	term := c.status(c.leader()).GetTerm()
	for i := range c.configs {
		behind := c.running[(i+1)%3].store
		c.stopServer(i)
		then := behind.Status().AppliedIndex
		c.start(i)
		c.ready()
		if got := c.running[i].store.Status().AppliedIndex; got < then {
			t.Errorf("%s is ready at entry %d, others were at %d before it started", c.configs[i].ID, got, then)
		}
	}
	cancel()
	acked := <-written
	if len(acked) < 50 {
		t.Errorf("only %d writes acknowledged", len(acked))
	}
	for i := range c.configs {
		c.has(i, acked...)
	}
	if got := c.status(0).GetTerm(); got > term+3 {
		t.Errorf("term %d, was %d before three restarts", got, term)
	}
	t.Logf("%d writes acknowledged, terms %d to %d", len(acked), term, c.status(0).GetTerm())
}
