package console

import (
	"slices"
	"strconv"

	pb "github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"github.com/leasehold-dev/leasehold/ring/gossip"
)

// The rows of a message, as the page reads them. Times of day are Unix
// milliseconds; what ends in _ms is a length of time, except since_ms.

type clusterRow struct {
	ClusterID      string `json:"cluster_id"`
	Server         string `json:"server"`
	Version        string `json:"version"`
	Leader         string `json:"leader"`  // "": none
	Leading        bool   `json:"leading"` // this server leads: it knows what workers say
	Term           uint64 `json:"term"`
	Ready          bool   `json:"ready"`
	NotReadyReason string `json:"not_ready_reason"`
	AgeMS          int64  `json:"age_ms"` // since this server last heard from a leader
	StateRevision  uint64 `json:"state_revision"`
	LastToken      string `json:"last_token"`
	FeatureLevel   uint32 `json:"feature_level"`
	StrictHoldMS   int64  `json:"strict_hold_ms"`
	Sessions       int64  `json:"sessions"`
	Workers        int64  `json:"workers"`
}

func clusterOf(m *pb.Status, leading bool) clusterRow {
	return clusterRow{
		ClusterID: m.GetClusterId(), Server: m.GetServerId(), Version: m.GetVersion(),
		Leader: m.GetLeaderId(), Leading: leading, Term: m.GetTerm(), Ready: m.GetReady(), NotReadyReason: m.GetNotReadyReason(),
		AgeMS: m.GetAgeMs(), StateRevision: m.GetRevision(), LastToken: strconv.FormatUint(m.GetLastToken(), 10),
		FeatureLevel: m.GetFeatureLevel(), StrictHoldMS: m.GetStrictHoldMs(), Sessions: m.GetSessions(), Workers: m.GetWorkers(),
	}
}

// still is the row without what changes with time alone.
func (r clusterRow) still() clusterRow {
	r.AgeMS, r.StrictHoldMS = 0, 0
	return r
}

// versionsOf are the versions of servers, each once.
func versionsOf(peers []*pb.Peer) []string {
	all := []string{}
	for _, p := range peers {
		if v := p.GetVersion(); v != "" && !slices.Contains(all, v) {
			all = append(all, v)
		}
	}
	slices.Sort(all)
	return all
}

type keyspaceRow struct {
	Name        string `json:"name"`
	Partitions  uint32 `json:"partitions"`
	TTLMS       int64  `json:"ttl_ms"`
	Takeover    string `json:"takeover"` // strict, fenced
	Deleting    bool   `json:"deleting"`
	Owned       int64  `json:"owned"` // with those that drain
	Draining    int64  `json:"draining"`
	Unowned     int64  `json:"unowned"` // with those in quarantine
	Quarantined int64  `json:"quarantined"`
	Blocked     int    `json:"blocked"` // known of keyspaces that somebody watches
}

func keyspacesOf(items []*pb.Keyspace, blocked map[string]int) []keyspaceRow {
	rows := make([]keyspaceRow, 0, len(items))
	for _, m := range items {
		st := m.GetStatus()
		takeover := "strict"
		if m.GetTakeover() == pb.Takeover_TAKEOVER_FENCED {
			takeover = "fenced"
		}
		rows = append(rows, keyspaceRow{
			Name: m.GetName(), Partitions: m.GetPartitions(), TTLMS: m.GetTtlMs(), Takeover: takeover, Deleting: m.GetDeleting(),
			Owned: st.GetOwned(), Draining: st.GetDraining(), Unowned: st.GetUnowned(), Quarantined: st.GetQuarantined(),
			Blocked: blocked[m.GetName()],
		})
	}
	return rows
}

type workerRow struct {
	ID          string  `json:"id"`
	Session     string  `json:"session_id"` // "0": none
	State       string  `json:"state"`      // live, leaving, superseded, evicted, gone
	Draining    bool    `json:"draining"`
	Held        int64   `json:"held"`
	Capacity    uint32  `json:"capacity"`
	Zone        string  `json:"zone"`
	RemainingMS int64   `json:"remaining_ms"`
	TTLMS       int64   `json:"ttl_ms"`
	Margin      float64 `json:"margin"` // remaining_ms of ttl_ms, 0 to 1
	Endpoint    string  `json:"endpoint"`
	Addr        string  `json:"addr"`
	Gossip      string  `json:"gossip"`

	known bool
	live  liveRow
}

// liveRow is what only the leader knows. The page of another server has none.
type liveRow struct {
	Attached          bool   `json:"attached"`
	Running           int64  `json:"running"`
	Version           string `json:"version"`
	Overruns          uint64 `json:"overruns"`
	FencingRejections uint64 `json:"fencing_rejections"`
	LongestPauseMS    int64  `json:"longest_pause_ms"`
}

func workersOf(items []*pb.Worker, leading bool) []workerRow {
	rows := make([]workerRow, 0, len(items))
	for _, m := range items {
		r := workerRow{
			ID: m.GetId(), Session: strconv.FormatUint(m.GetSessionId(), 10), State: m.GetState(), Draining: m.GetDraining(),
			Held: m.GetHeld(), Capacity: m.GetCapacity(), Zone: m.GetZone(),
			RemainingMS: m.GetRemainingMs(), TTLMS: m.GetTtlMs(), Endpoint: m.GetEndpoint(), Addr: m.GetAddr(), Gossip: m.GetGossip(),
			known: leading,
		}
		if r.TTLMS > 0 {
			r.Margin = float64(r.RemainingMS*1000/r.TTLMS) / 1000
		}
		if leading {
			r.live = liveRow{m.GetAttached(), m.GetRunning(), m.GetVersion(), m.GetOverruns(), m.GetFencingRejections(), m.GetLongestPauseMs()}
		}
		rows = append(rows, r)
	}
	return rows
}

func (r workerRow) still() workerRow {
	r.RemainingMS, r.Margin = 0, 0
	return r
}

// wire is a row as it is encoded: what is not known is not there.
func (r *workerRow) wire() any {
	type known struct {
		*workerRow
		liveRow
	}
	if r.known {
		return known{r, r.live}
	}
	return r
}

type serverRow struct {
	ID            string `json:"id"`
	Store         string `json:"store_id"`
	Leader        bool   `json:"leader"`
	Voter         bool   `json:"voter"`
	Version       string `json:"version"`
	RaftAddr      string `json:"raft_addr"`
	GRPCAddr      string `json:"grpc_addr"`
	HTTPAddr      string `json:"http_addr"`
	Gossip        string `json:"gossip"`
	LastContactMS int64  `json:"last_contact_ms"` // of the leader's view, -1: not known
	LastIndex     uint64 `json:"last_index"`      // of the leader's view, 0: not known
	Feature       uint32 `json:"feature"`         // the highest level it knows, 0: not known
	Note          string `json:"note"`
}

func serversOf(peers []*pb.Peer) []serverRow {
	rows := make([]serverRow, 0, len(peers))
	for _, m := range peers {
		rows = append(rows, serverRow{
			ID: m.GetServerId(), Store: m.GetStoreId(), Leader: m.GetLeader(), Voter: m.GetVoter(), Version: m.GetVersion(),
			RaftAddr: m.GetRaftAddr(), GRPCAddr: m.GetGrpcAddr(), HTTPAddr: m.GetHttpAddr(), Gossip: m.GetGossip(),
			LastContactMS: m.GetLastContactMs(), LastIndex: m.GetLastIndex(), Feature: m.GetMaxFeatureLevel(), Note: m.GetNote(),
		})
	}
	return rows
}

func (r serverRow) still() serverRow {
	r.LastContactMS, r.LastIndex = 0, 0
	return r
}

type memberRow struct {
	Role    string `json:"role"` // server, worker
	ID      string `json:"id"`
	Status  string `json:"status"` // alive, leaving, left, dead: as this server sees it
	Addr    string `json:"addr"`
	SinceMS int64  `json:"since_ms"` // time of day of the last change, by this server's clock
}

func membersOf(items []gossip.Member) []memberRow {
	rows := make([]memberRow, 0, len(items))
	for _, m := range items {
		rows = append(rows, memberRow{string(m.Meta.Role), m.Meta.ID, m.Status.String(), m.Addr, m.Since.UnixMilli()})
	}
	return rows
}
