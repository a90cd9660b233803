package doctor

import (
	"errors"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
)

const second = int64(time.Second / time.Millisecond)

// healthy is a cluster of three with a fenced and a strict keyspace and two
// workers, of which nothing is to be said.
func healthy() *Facts {
	f := &Facts{Apart: 2 * time.Second, Holding: map[string]time.Duration{}}
	wall := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for i, id := range []string{"s1", "s2", "s3"} {
		look := func(at time.Duration) Look {
			h := &pb.ServerHealth{
				ServerId: id, Boot: uint64(100 + i), UptimeMs: 3600 * second, MaxFeatureLevel: 1,
				BootClockNs: (time.Duration(i+1)*time.Hour + at + time.Millisecond).Nanoseconds(), WallClock: timestamppb.New(wall.Add(at)),
				DataDir: "/data", DiskFreeBytes: 50 << 30, DiskSizeBytes: 100 << 30, DataBytes: 20 << 20,
				FsyncCount: 1000, FsyncP50Ms: 1, FsyncP99Ms: 5, FsyncMaxMs: 20,
				LogFirstIndex: 1, LogLastIndex: 1000, SnapshotIndex: 900, SnapshotAgeMs: 600 * second,
				OpenFiles: 50, MaxOpenFiles: 65536, LeaderChanges: 1, Goroutines: 100,
				Certificates: []*pb.CertificateInfo{
					{Use: "server", Subject: "leasehold://prod/server/" + id, File: "/pki/" + id + ".pem", NotAfter: timestamppb.New(wall.AddDate(0, 0, 15))},
					{Use: "authority", Subject: "CN=ca", File: "/pki/ca.pem", NotAfter: timestamppb.New(wall.AddDate(0, 0, 61))},
					{Use: "list", Subject: "CN=ca", File: "/pki/crl.pem", NotAfter: timestamppb.New(wall.AddDate(0, 0, 15))},
				},
			}
			for _, other := range []string{"s1", "s2", "s3"} {
				h.Gossip = append(h.Gossip, &pb.GossipView{Role: "server", Id: other, Status: "alive", SinceMs: 3000 * second})
			}
			state := "follower"
			if id == "s1" {
				state = "leader"
			}
			return Look{
				Status: &pb.Status{
					ClusterId: "c0ffee", ServerId: id, LeaderId: "s1", Term: 7, Ready: true, HasState: true, RaftState: state, Version: "1.0.0",
					AppliedIndex: 1000, CommitIndex: 1000, ElectionTimeoutMs: 500, FeatureLevel: 1, MaxFeatureLevel: 1, Tls: true,
				},
				Peers:  &pb.ListPeersResponse{},
				Health: h,
				Clock:  Bracket{Sent: at, Received: at + 2*time.Millisecond, SentAt: wall.Add(at)},
			}
		}
		s := Server{ID: id, Addr: "10.0.0." + string(rune('1'+i)) + ":7400", First: look(time.Second), Second: look(3 * time.Second)}
		for _, l := range []*Look{&s.First, &s.Second} {
			for j, other := range []string{"s1", "s2", "s3"} {
				l.Peers.Items = append(l.Peers.Items, &pb.Peer{
					ServerId: other, GrpcAddr: "10.0.0." + string(rune('1'+j)) + ":7400", Voter: true, Leader: other == "s1", Gossip: "alive",
					Version: "1.0.0", LastContactMs: int64(20 * j), LastIndex: 1000, MaxFeatureLevel: 1, StoreId: "0a1b" + other,
				})
			}
		}
		f.Servers = append(f.Servers, s)
	}
	f.Keyspaces = []*pb.Keyspace{
		{Name: "orders", Partitions: 64, TtlMs: 10 * second, Takeover: pb.Takeover_TAKEOVER_STRICT, Status: &pb.KeyspaceStatus{Partitions: 64, Owned: 64}},
		{Name: "mails", Partitions: 16, TtlMs: 10 * second, Takeover: pb.Takeover_TAKEOVER_FENCED, Status: &pb.KeyspaceStatus{Partitions: 16, Owned: 16}},
	}
	for _, id := range []string{"w1", "w2"} {
		f.Workers = append(f.Workers, &pb.Worker{
			Id: id, SessionId: 7, State: "live", TtlMs: 10 * second, RemainingMs: 9 * second, Held: 40, Running: 40, Gossip: "alive", Attached: true,
			Keyspaces: []string{"orders", "mails"}, FencingChecks: 40, LongestPauseMs: 30,
		})
	}
	return f
}

// each changes every server's second look, and the first too if it is told so.
func (f *Facts) each(change func(s *Server)) {
	for i := range f.Servers {
		change(&f.Servers[i])
	}
}

// down makes a server silent in both rounds.
func (f *Facts) down(id, gossip string, contact time.Duration) {
	f.each(func(s *Server) {
		if s.ID == id {
			s.First, s.Second = Look{Err: errors.New("refused")}, Look{Err: errors.New("refused")}
			return
		}
		for _, p := range s.Second.Peers.GetItems() {
			if p.GetServerId() == id {
				p.Gossip, p.LastContactMs = gossip, contact.Milliseconds()
			}
		}
		for _, g := range s.Second.Health.GetGossip() {
			if g.GetId() == id {
				g.Status, g.SinceMs = gossip, 12*second
			}
		}
	})
}

// noLeader makes nobody lead.
func (f *Facts) noLeader() {
	f.each(func(s *Server) {
		if s.Up() {
			s.Second.Status.LeaderId, s.Second.Status.RaftState = "", "candidate"
		}
	})
}

// drift makes a server's boot clock run at another rate.
func (f *Facts) drift(id string, rate float64) {
	s := f.byID(id)
	passed := s.Second.Health.BootClockNs - s.First.Health.BootClockNs
	s.Second.Health.BootClockNs = s.First.Health.BootClockNs + int64(float64(passed)*rate)
}

// slow makes the answers of all servers take long.
func (f *Facts) slow(d time.Duration) {
	f.each(func(s *Server) {
		s.First.Clock.Received += d
		s.Second.Clock.Received += d
	})
}

func health(id string, change func(*pb.ServerHealth)) func(*Facts) {
	return func(f *Facts) { change(f.byID(id).Second.Health) }
}

func worker(change func(*pb.Worker)) func(*Facts) {
	return func(f *Facts) { change(f.Workers[0]) }
}

func unowned(f *Facts, keyspace, reason string, state pb.PartitionState, partitions ...uint32) {
	for _, p := range partitions {
		f.Unowned = append(f.Unowned, &pb.Partition{Keyspace: keyspace, Partition: p, State: state, Reason: reason})
	}
	f.keyspace(keyspace).Status.Unowned = int64(len(partitions))
}

// nonVoter makes s3 one that is some entries behind at both looks.
func nonVoter(first, second uint64) func(*Facts) {
	return func(f *Facts) {
		for i, l := range []*Look{&f.byID("s1").First, &f.byID("s1").Second} {
			p := l.Peers.Items[2]
			p.Voter, p.LastIndex = false, 1000-[]uint64{first, second}[i]
		}
	}
}

func gossipView(viewer, target, status string) func(*Facts) {
	return func(f *Facts) {
		s := f.byID(viewer)
		for _, h := range []*pb.ServerHealth{s.First.Health, s.Second.Health} {
			for _, g := range h.Gossip {
				if g.Id == target {
					g.Status = status
				}
			}
		}
	}
}

func both(changes ...func(*Facts)) func(*Facts) {
	return func(f *Facts) {
		for _, change := range changes {
			change(f)
		}
	}
}
