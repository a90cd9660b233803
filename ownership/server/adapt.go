package server

import (
	"context"
	"time"

	gometrics "github.com/hashicorp/go-metrics"

	"github.com/leasehold-dev/leasehold/metrics"
	"github.com/leasehold-dev/leasehold/ownership/controller"
	"github.com/leasehold-dev/leasehold/raftstore"
	"github.com/leasehold-dev/leasehold/raftstore/state"
	"github.com/leasehold-dev/leasehold/ring/gossip"
)

// memberView is the member table in the controller's words.
type memberView struct{ g *gossip.Gossip }

// Look speaks of the process that opened the session only: news of another
// process under the same worker id says nothing about it.
func (v memberView) Look(worker string, session state.SessionID) (controller.Verdict, time.Duration) {
	m, ok := v.g.Member(gossip.Name(gossip.RoleWorker, worker))
	if !ok || m.Meta.Session != uint64(session) {
		return controller.Unknown, 0
	}
	if m.Up() {
		return controller.Alive, time.Since(m.Since)
	}
	return controller.Dead, time.Since(m.Since)
}

// Probe asks the worker for a sign of life.
func (v memberView) Probe(ctx context.Context, worker string) bool {
	return v.g.Probe(ctx, gossip.Name(gossip.RoleWorker, worker))
}

// gossipMetrics counts what is too large among the limits, too.
type gossipMetrics struct {
	*metrics.Gossip
	m *metrics.Server
}

func (g gossipMetrics) Rejected(reason string) {
	g.Gossip.Rejected(reason)
	if reason == "size" {
		g.m.LimitHit("gossip_payload")
	}
}

// storeMetrics feeds raftstore's figures to the series and counts what GetHealth
// tells.
type storeMetrics struct {
	m *metrics.Server
	v *vitals
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

func (s storeMetrics) CommitSeconds(v float64)          { s.m.Raft().Committed(seconds(v)) }
func (s storeMetrics) FsyncSeconds(_ string, v float64) { s.m.Raft().Fsync(seconds(v)) }
func (s storeMetrics) SnapshotSeconds(v float64)        { s.m.Raft().SnapshotTaken(seconds(v)) }
func (s storeMetrics) BatchCommands(n int)              { s.m.Raft().Batched(n) }
func (s storeMetrics) ApplySeconds(v float64)           { s.m.Raft().Applied(seconds(v)) }
func (s storeMetrics) SessionExpired(overdue float64)   { s.m.ExpiryOverdue(seconds(overdue)) }
func (s storeMetrics) KeepAlives(n int, outcome string) { s.m.KeepAlives(outcome, n) }
func (s storeMetrics) SnapshotFailed()                  { s.m.Raft().SnapshotFailed() }
func (s storeMetrics) DiskHangs()                       { s.m.Raft().DiskStalled() }
func (s storeMetrics) CallerRefused()                   { s.m.AuthFailed("denied") }
func (s storeMetrics) FrameRefused()                    { s.m.LimitHit("raft_frame") }

func (s storeMetrics) LeaderChange() {
	s.m.Raft().LeaderChanged()
	s.v.leaderChanges.Add(1)
}

// controllerMetrics feeds the controller's figures to the series. It belongs
// to the controller's loop, of which there is one at a time; what is known per
// keyspace is added up, since a label per keyspace would say little.
type controllerMetrics struct {
	m              *metrics.Server
	planned, stuck map[string]int
	imbalance      map[string]float64
}

func newControllerMetrics(m *metrics.Server) *controllerMetrics {
	return &controllerMetrics{m: m, planned: map[string]int{}, stuck: map[string]int{}, imbalance: map[string]float64{}}
}

// forget is called when the role has ended: a follower knows nothing of plans.
func (c *controllerMetrics) forget() {
	clear(c.planned)
	clear(c.stuck)
	clear(c.imbalance)
	c.m.Planned(0, 0, 0)
}

func (c *controllerMetrics) publish() {
	moves, stuck, worst := 0, 0, 0.0
	for _, n := range c.planned {
		moves += n
	}
	for _, n := range c.stuck {
		stuck += n
	}
	for _, r := range c.imbalance {
		worst = max(worst, r)
	}
	c.m.Planned(moves, stuck, worst)
}

// Planned is how many balance moves are still to come.
func (c *controllerMetrics) Planned(keyspace string, n int) {
	c.planned[keyspace] = n
	c.publish()
}

// Imbalance is the greatest load over its fair share.
func (c *controllerMetrics) Imbalance(keyspace string, ratio float64) {
	c.imbalance[keyspace] = ratio
	c.publish()
}

// Stuck is how many drains are past their timeout.
func (c *controllerMetrics) Stuck(keyspace string, n int) {
	c.stuck[keyspace] = n
	c.publish()
}

// Moved counts grants by why the partition changed hands.
func (c *controllerMetrics) Moved(_ string, cause state.Cause, n int) { c.m.Moved(cause.String(), n) }

// Takeover is the time a partition was without a living owner.
func (c *controllerMetrics) Takeover(_ string, cause state.Cause, d time.Duration) {
	c.m.Takeover(cause.String(), d)
}

// Drained is the time from drain to release.
func (c *controllerMetrics) Drained(_ string, d time.Duration) { c.m.Handoff("drain", d) }

// Handoff is the time from drain to grant.
func (c *controllerMetrics) Handoff(_ string, _ state.Cause, d time.Duration) {
	c.m.Handoff("total", d)
}

// Refused counts grants that the log refused.
func (c *controllerMetrics) Refused(_ string, n int) { c.m.GrantsRefused(n) }

// raftFigures is one look at Raft.
func raftFigures(st raftstore.Status) metrics.RaftStatus {
	voters, inContact, lag := 0, 0, uint64(0)
	leads := st.State == "leader"
	for _, p := range st.Peers {
		if !p.Voter {
			continue
		}
		voters++
		if leads && p.LastContact >= 0 && p.LastContact < time.Second {
			inContact++
		}
		if leads && p.LastIndex > 0 { // 0 is not known, right after an election
			lag = max(lag, st.LastIndex-min(p.LastIndex, st.LastIndex))
		}
	}
	return metrics.RaftStatus{
		IsLeader: st.State == "leader", HasLeader: st.LeaderID != "", Term: st.Term,
		CommitIndex: st.CommitIndex, AppliedIndex: st.AppliedIndex, LastLogIndex: st.LastIndex,
		LastContact: max(st.LastContact, 0), Voters: voters,
		InContact: inContact, FollowerLag: lag,
	}
}

// storageFigures is one look at the data directory.
func storageFigures(st raftstore.StorageStatus) metrics.StorageStatus {
	return metrics.StorageStatus{
		LastLogIndex: st.LastIndex, SnapshotIndex: st.SnapshotIndex,
		OldestEntry: st.OldestEntry, SnapshotTime: st.SnapshotTime,
		SnapshotBytes: st.SnapshotBytes, DataBytes: st.DataBytes, FreeBytes: st.FreeBytes, Poisoned: st.Poisoned,
	}
}

// sinkConfig keeps the libraries' names as they are: no host, no Go runtime
// figures, which the registry has its own collectors for.
func sinkConfig() *gometrics.Config {
	cfg := gometrics.DefaultConfig("")
	cfg.EnableHostname, cfg.EnableRuntimeMetrics = false, false
	cfg.EnableServiceLabel, cfg.EnableTypePrefix = false, false
	return cfg
}
