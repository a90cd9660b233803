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

// storeMetrics feeds raftstore's figures to the series.
type storeMetrics struct{ m *metrics.Server }

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

func (s storeMetrics) CommitSeconds(v float64)              { s.m.Raft().Committed(seconds(v)) }
func (s storeMetrics) FsyncSeconds(store string, v float64) { s.m.Raft().Fsync(store, seconds(v)) }
func (s storeMetrics) SnapshotSeconds(v float64)            { s.m.Raft().Fsync("snapshot", seconds(v)) }
func (s storeMetrics) LeaderChange()                        { s.m.Raft().LeaderChanged() }
func (s storeMetrics) BatchCommands(n int)                  { s.m.Raft().Batched(n) }
func (s storeMetrics) SessionsExpired(int)                  {} // counted from the events, on every server
func (s storeMetrics) KeepAlives(n int, outcome string)     { s.m.KeepAlives(outcome, n) }
func (s storeMetrics) DiskHangs()                           { s.m.Raft().DiskStalled() }

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

// Handoff is the time from drain to grant.
func (c *controllerMetrics) Handoff(_ string, _ state.Cause, d time.Duration) {
	c.m.Handoff("total", d)
}

// eventCounter counts what the log says, on every server alike. It is used by
// the applying goroutine only.
type eventCounter struct {
	m   *metrics.Server
	buf []state.Event
}

// eventChunk bounds the copy that one look at the ledger makes.
const eventChunk = 4096

func (c *eventCounter) count(st *state.State, from, to uint64) {
	for from < to {
		var err error
		c.buf, err = st.Events(from, eventChunk, c.buf[:0])
		if err != nil || len(c.buf) == 0 {
			return // more in one entry than the ledger keeps: not counted
		}
		c.tally(st)
		from = c.buf[len(c.buf)-1].Revision
	}
}

// tally adds up runs of grants, since a plan makes thousands in a row.
func (c *eventCounter) tally(st *state.State) {
	var keyspace state.KeyspaceID
	granted := 0
	flush := func() {
		if k, ok := st.Keyspace(keyspace); ok && granted > 0 {
			c.m.Granted(k.Name, granted)
		}
		granted = 0
	}
	for i := range c.buf {
		switch e := &c.buf[i]; e.Kind {
		case state.KindGrant:
			if e.Keyspace != keyspace {
				flush()
				keyspace = e.Keyspace
			}
			granted++
		case state.KindSessionOpen:
			c.m.SessionOpened()
		case state.KindSessionExpire:
			c.m.SessionExpired("ttl")
		case state.KindSessionBar:
			c.m.SessionExpired(e.Cause.String())
		}
	}
	flush()
}

// raftFigures is one look at Raft.
func raftFigures(st raftstore.Status) metrics.RaftStatus {
	voters := 0
	for _, p := range st.Peers {
		if p.Voter {
			voters++
		}
	}
	return metrics.RaftStatus{
		IsLeader: st.State == "leader", HasLeader: st.LeaderID != "", Term: st.Term,
		CommitIndex: st.CommitIndex, AppliedIndex: st.AppliedIndex, LastLogIndex: st.LastIndex,
		LastContact: max(st.LastContact, 0), Voters: voters,
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
