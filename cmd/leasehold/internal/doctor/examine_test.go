package doctor

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
)

var errDenied = pb.StatusError(codes.PermissionDenied, &pb.ErrorDetail{Reason: pb.ReasonDenied, Message: "GetHealth wants the role reader or operator"})

// certificate changes when one of a server's certificates runs out.
func certificate(id string, i int, left time.Duration) func(*Facts) {
	return health(id, func(h *pb.ServerHealth) {
		h.Certificates[i].NotAfter = timestamppb.New(h.GetWallClock().AsTime().Add(left))
	})
}

// Each finding has a history that has it and one, close by, that has not.
func TestFindings(t *testing.T) {
	for _, c := range []struct {
		code, severity string
		has, hasNot    func(*Facts)
		says           []string // somewhere in the finding
	}{
		{code: "two_clusters", severity: Critical, says: []string{"c0ffee: s1, s2", "beef: s3"},
			has:    func(f *Facts) { f.byID("s3").Second.Status.ClusterId = "beef" },
			hasNot: func(f *Facts) { f.byID("s3").Second.Status.ClusterId = "" }}, // it has not read its log yet
		{code: "two_clusters", severity: Critical, says: []string{"beef: s3"},
			has: func(f *Facts) { // it has not read its log yet, its data directory says so
				f.byID("s3").Second.Status.ClusterId, f.byID("s3").Second.Health.ClusterId = "", "beef"
			},
			hasNot: func(*Facts) {}},
		{code: "same_id", severity: Critical, says: []string{"s1", "10.0.0.1:7400 and 10.0.0.2:7400"},
			has:    func(f *Facts) { f.Servers[1].ID = "s1" },
			hasNot: func(*Facts) {}},
		{code: "not_formed", severity: Critical, says: []string{"cluster init", "2 of 3 servers seen"},
			has: func(f *Facts) {
				f.noLeader()
				f.each(func(s *Server) {
					s.Second.Status.ClusterId, s.Second.Status.HasState, s.Second.Status.NotReadyReason, s.Second.Peers.Items = "", false, "2 of 3 servers seen", nil
				})
			},
			hasNot: (*Facts).noLeader},
		{code: "no_leader", severity: Critical, says: []string{"s2: candidate in term 7", "status --wait"},
			has:    (*Facts).noLeader,
			hasNot: func(f *Facts) { f.down("s1", "alive", 0) }}, // the others name one
		{code: "leader_silent", severity: Warning, says: []string{"server s1"},
			has:    func(f *Facts) { f.down("s1", "alive", 0) },
			hasNot: func(f *Facts) { f.down("s2", "dead", -time.Millisecond) }},
		{code: "server_restarted", severity: Warning, says: []string{"server s2", "runs for 1s"},
			has:    health("s2", func(h *pb.ServerHealth) { h.Boot, h.UptimeMs = 9, second }),
			hasNot: health("s2", func(h *pb.ServerHealth) { h.UptimeMs = second })},
		{code: "leader_changes", severity: Warning, says: []string{"2 changes in 2s, 3 since"},
			has: health("s2", func(h *pb.ServerHealth) { h.LeaderChanges = 3 }),
			hasNot: func(f *Facts) {
				f.each(func(s *Server) { s.First.Health.LeaderChanges, s.Second.Health.LeaderChanges = 9, 9 })
			}},
		{code: "certificate_expiring", severity: Warning, says: []string{"leasehold://prod/server/s2 in /pki/s2.pem until 2026-03-14", "tls issue --renew s2"},
			has:    certificate("s2", 0, 13*24*time.Hour),
			hasNot: certificate("s2", 0, 15*24*time.Hour)},
		{code: "certificate_expiring", severity: Warning, says: []string{"an authority", "CN=ca"},
			has:    certificate("s2", 1, 59*24*time.Hour),
			hasNot: certificate("s2", 1, 61*24*time.Hour)},
		{code: "certificate_expiring", severity: Warning, says: []string{"list of revoked certificates", "does not start again", "leasehold tls revoke"},
			has:    certificate("s2", 2, 13*24*time.Hour),
			hasNot: certificate("s2", 2, 15*24*time.Hour)},
		{code: "certificate_expired", severity: Critical, says: []string{"the server's certificate has run out", "since then"},
			has:    certificate("s2", 0, -time.Minute),
			hasNot: certificate("s2", 0, time.Minute)},
		{code: "plaintext", severity: Notice, says: []string{"s3 at 10.0.0.3:7400"},
			has: func(f *Facts) { f.byID("s3").Second.Status.Tls = false },
			hasNot: func(f *Facts) {
				f.each(func(s *Server) {
					s.Second.Status.Tls = false
					for _, p := range s.Second.Peers.GetItems() {
						p.GrpcAddr = "127.0.0.1:7400"
					}
				})
			}},
		{code: "not_allowed", severity: Warning, says: []string{"disks, clocks and certificates, keyspaces", "wants the role reader"},
			has: func(f *Facts) {
				f.byID("s2").Second.Health, f.byID("s2").Second.HealthErr, f.ListsError = nil, errDenied, errDenied
			},
			hasNot: func(f *Facts) { f.ListsError = errors.New("deadline") }},
		{code: "not_allowed", severity: Critical, says: []string{"server s1", "--credential-file"},
			has: func(f *Facts) { f.each(func(s *Server) { s.Second = Look{Err: errDenied} }) },
			hasNot: func(f *Facts) {
				f.each(func(s *Server) { s.Second = Look{Err: errors.New("refused")} })
			}},
		{code: "server_dead", severity: Warning, says: []string{"server s3", "leasehold raft remove s3", "dead for 12s", "refused"},
			has:    func(f *Facts) { f.down("s3", "dead", 30*time.Second) },
			hasNot: func(f *Facts) { f.down("s3", "alive", 30*time.Millisecond) }},
		{code: "server_silent", severity: Warning, says: []string{"server s3", "30s ago", "raft remove s3"},
			has:    func(f *Facts) { f.down("s3", "alive", 30*time.Second) },
			hasNot: func(f *Facts) { f.down("s3", "alive", 30*time.Millisecond) }},
		{code: "server_unreachable", severity: Warning, says: []string{"server s3", "30ms ago", "10.0.0.3:7400"},
			has:    func(f *Facts) { f.down("s3", "alive", 30*time.Millisecond) },
			hasNot: func(f *Facts) { f.down("s3", "dead", 30*time.Second) }},
		{code: "server_unreachable", severity: Warning, says: []string{"10.0.0.9:7400", "timed out"},
			has: func(f *Facts) {
				f.Servers = append(f.Servers, Server{Addr: "10.0.0.9:7400", Second: Look{Err: errors.New("timed out")}})
			},
			hasNot: func(*Facts) {}},
		{code: "server_not_ready", severity: Warning, says: []string{"server s2", "no word from leader"},
			has: func(f *Facts) {
				s := f.byID("s2")
				s.First.Status.Ready, s.Second.Status.Ready, s.Second.Status.NotReadyReason = false, false, "no word from leader"
			},
			hasNot: func(f *Facts) { f.byID("s2").Second.Status.Ready = false }}, // a moment
		{code: "server_not_ready", severity: Warning, says: []string{"server s3", "was removed from the cluster"},
			has: func(f *Facts) {
				s := f.byID("s3")
				s.First.Status.Ready, s.Second.Status.Ready, s.Second.Status.LeaderId = false, false, ""
				s.Second.Status.NotReadyReason = "this server was removed from the cluster"
			},
			hasNot: func(*Facts) {}},
		{code: "quorum_lost", severity: Critical, says: []string{"1 of 3 voters are up, 2 are needed"},
			has: func(f *Facts) {
				f.down("s2", "dead", -time.Millisecond)
				f.down("s3", "dead", -time.Millisecond)
				f.noLeader()
			},
			hasNot: func(f *Facts) { f.down("s3", "dead", -time.Millisecond) }},
		{code: "quorum_at_risk", severity: Warning, says: []string{"2 of 3 voters are up, 2 are needed"},
			has:    func(f *Facts) { f.down("s3", "dead", 30*time.Second) },
			hasNot: func(f *Facts) { f.down("s3", "alive", 30*time.Millisecond) }}, // it votes: only we do not reach it
		{code: "single_server", severity: Notice, says: []string{"1 of 1"},
			has: func(f *Facts) {
				f.Servers = f.Servers[:1]
				f.Servers[0].Second.Peers.Items = f.Servers[0].Second.Peers.Items[:1]
			},
			hasNot: func(*Facts) {}},
		{code: "even_voters", severity: Notice, says: []string{"4 of 4"},
			has: func(f *Facts) {
				s := f.Servers[2]
				s.ID = "s4"
				s.Second.Status = &pb.Status{ServerId: "s4", LeaderId: "s1", HasState: true, Ready: true, Version: "1.0.0", FeatureLevel: 1, MaxFeatureLevel: 1, ClusterId: "c0ffee"}
				f.Servers = append(f.Servers, s)
				l := f.byID("s1").Second.Peers
				l.Items = append(l.Items, &pb.Peer{ServerId: "s4", Voter: true, Gossip: "alive"})
			},
			hasNot: func(*Facts) {}},
		{code: "not_catching_up", severity: Warning, says: []string{"server s3", "400 entries behind"},
			has: nonVoter(400, 400), hasNot: nonVoter(400, 300)},
		{code: "server_too_old", severity: Critical, says: []string{"server s3", "knows level 1, the cluster is at 2"},
			has: func(f *Facts) {
				f.each(func(s *Server) {
					s.Second.Status.FeatureLevel = 2
					if s.ID != "s3" {
						s.Second.Status.MaxFeatureLevel = 2
					}
				})
			},
			hasNot: func(f *Facts) {
				f.each(func(s *Server) { s.Second.Status.FeatureLevel, s.Second.Status.MaxFeatureLevel = 2, 2 })
			}},
		{code: "version_mix", severity: Warning, says: []string{"1.0.0 on s1, s2; 1.1.0 on s3"},
			has:    func(f *Facts) { f.byID("s3").Second.Status.Version = "1.1.0" },
			hasNot: func(f *Facts) { f.each(func(s *Server) { s.Second.Status.Version = "1.1.0" }) }},
		{code: "feature_level", severity: Notice, says: []string{"level 2, the cluster is at 1"},
			has:    func(f *Facts) { f.each(func(s *Server) { s.Second.Status.MaxFeatureLevel = 2 }) },
			hasNot: func(f *Facts) { f.byID("s1").Second.Status.MaxFeatureLevel = 2 }},
		{code: "keys_off", severity: Warning, says: []string{"need feature level 2, the cluster is at 1; s3 do not know it"},
			has: func(f *Facts) {
				f.byID("s1").Second.Status.MaxFeatureLevel, f.byID("s2").Second.Status.MaxFeatureLevel = 2, 2
			},
			hasNot: func(f *Facts) { f.each(func(s *Server) { s.Second.Status.MaxFeatureLevel = 2 }) }}, // raised in a moment
		{code: "keys_no_space", severity: Critical, says: []string{"60.0 MiB of the quota of 100.0 MiB (60 %)", "kv disarm"},
			has:    keyFigures(func(k *pb.KeyFigures) { k.NoSpace, k.Bytes = true, 60<<20 }),
			hasNot: keyFigures(func(k *pb.KeyFigures) { k.Bytes = 60 << 20 })},
		{code: "keys_filling", severity: Warning, says: []string{"51.0 MiB of the quota"},
			has: keyFigures(func(k *pb.KeyFigures) { k.Bytes = 51 << 20 }), hasNot: keyFigures(func(k *pb.KeyFigures) { k.Bytes = 49 << 20 })},
		{code: "keys_filling", severity: Critical, says: []string{"91.0 MiB", "nearly full"},
			has: keyFigures(func(k *pb.KeyFigures) { k.Bytes = 91 << 20 }), hasNot: keyFigures(func(k *pb.KeyFigures) { k.Bytes, k.QuotaBytes = 91<<20, 0 })},
		{code: "keys_heavy_values", severity: Warning, says: []string{"the mean is 17 KiB"},
			has:    keyFigures(func(k *pb.KeyFigures) { k.ValueBytesMax, k.ValueBytesMean = 20<<10, 17<<10 }),
			hasNot: keyFigures(func(k *pb.KeyFigures) { k.ValueBytesMax, k.ValueBytesMean = 256<<10, 16<<10 })},
		{code: "keys_heavy_values", severity: Warning, says: []string{"largest value has 300 KiB", "an entry of the log"},
			has: keyFigures(func(k *pb.KeyFigures) { k.ValueBytesMax = 300 << 10 }), hasNot: func(*Facts) {}},
		{code: "keys_heavy_writes", severity: Warning, says: []string{"1250 revisions a second in 2s"},
			has:    keyFigures(func(k *pb.KeyFigures) { k.Revision = 5000 + 2500 }),
			hasNot: keyFigures(func(k *pb.KeyFigures) { k.Revision = 5000 + 1900 })},
		{code: "keys_heavy_writes", severity: Warning,
			has:    keyFigures(func(k *pb.KeyFigures) { k.Revision = 5000 + 2500 }),
			hasNot: keyFigures(func(k *pb.KeyFigures) { k.Revision, k.CompactedRevision = 1<<40, 1<<40 })}, // restored meanwhile
		{code: "keys_history", severity: Warning, says: []string{"5000 revisions are kept, 2000 are configured"},
			has: keyFigures(func(k *pb.KeyFigures) { k.CompactRevisions = 2000 }), hasNot: keyFigures(func(k *pb.KeyFigures) { k.CompactRevisions = 2500 })},
		{code: "keys_history", severity: Warning, says: []string{"--compact-age nor --compact-revisions"},
			has: func(f *Facts) {
				f.each(func(s *Server) {
					for _, l := range []*Look{&s.First, &s.Second} {
						l.Health.Keys = &pb.KeyFigures{Revision: 1_000_001}
					}
				})
			},
			hasNot: keyFigures(func(k *pb.KeyFigures) { k.CompactRevisions = 0 })}, // by age
		{code: "strict_hold", severity: Notice, says: []string{"8s"},
			has:    func(f *Facts) { f.byID("s1").Second.Status.StrictHoldMs = 8 * second },
			hasNot: func(*Facts) {}},
		{code: "clock_rate", severity: Critical, says: []string{"s2 runs 1.50 % faster than s1", "give or take 0.20 %"},
			has: func(f *Facts) { f.drift("s2", 1.015) }, hasNot: func(f *Facts) { f.drift("s2", 1.009) }},
		{code: "clock_rate", severity: Critical, says: []string{"faster than s3"},
			has: func(f *Facts) { f.drift("s3", 0.97) }, hasNot: func(f *Facts) { f.drift("s3", 0.995) }},
		{code: "clock_rate_unsure", severity: Notice, says: []string{"--duration 30s"},
			has: both(func(f *Facts) { f.drift("s2", 1.015) }, func(f *Facts) { f.slow(20 * time.Millisecond) }), hasNot: func(f *Facts) { f.slow(20 * time.Millisecond) }},
		{code: "wall_clock", severity: Warning, says: []string{"s2 is ahead of s1", "1.49"},
			has: health("s2", func(h *pb.ServerHealth) {
				h.WallClock = timestamppb.New(h.WallClock.AsTime().Add(1500 * time.Millisecond))
			}),
			hasNot: health("s2", func(h *pb.ServerHealth) {
				h.WallClock = timestamppb.New(h.WallClock.AsTime().Add(900 * time.Millisecond))
			})},
		{code: "storage_poisoned", severity: Critical, says: []string{"server s2", "/data"},
			has: health("s2", func(h *pb.ServerHealth) { h.StoragePoisoned = true }), hasNot: func(*Facts) {}},
		{code: "disk_filling", severity: Warning, says: []string{"server s2", "9.0 GiB of 100.0 GiB free (9.0 %)"},
			has:    health("s2", func(h *pb.ServerHealth) { h.DiskFreeBytes = 9 << 30 }),
			hasNot: health("s2", func(h *pb.ServerHealth) { h.DiskFreeBytes = 11 << 30 })},
		{code: "disk_filling", severity: Warning, says: []string{"900.0 MiB"}, // a small disk
			has:    health("s2", func(h *pb.ServerHealth) { h.DiskFreeBytes, h.DiskSizeBytes = 900<<20, 2<<30 }),
			hasNot: health("s2", func(h *pb.ServerHealth) { h.DiskFreeBytes, h.DiskSizeBytes = 0, 0 })}, // not known
		{code: "disk_filling", severity: Critical, says: []string{"is full"},
			has:    health("s2", func(h *pb.ServerHealth) { h.DiskFreeBytes = 60 << 20 }),
			hasNot: health("s2", func(h *pb.ServerHealth) { h.DiskFreeBytes = 11 << 30 })},
		{code: "slow_fsync", severity: Warning, says: []string{"server s2", "p99 140.0 ms", "election timeout 500ms"},
			has:    health("s2", func(h *pb.ServerHealth) { h.FsyncP99Ms = 140 }),
			hasNot: health("s2", func(h *pb.ServerHealth) { h.FsyncP99Ms, h.FsyncMaxMs = 90, 900 })},
		{code: "slow_fsync", severity: Warning, says: []string{"p99 90.0 ms", "election timeout 150ms"}, // short elections
			has:    both(health("s2", func(h *pb.ServerHealth) { h.FsyncP99Ms = 90 }), func(f *Facts) { f.each(func(s *Server) { s.Second.Status.ElectionTimeoutMs = 150 }) }),
			hasNot: health("s2", func(h *pb.ServerHealth) { h.FsyncP99Ms, h.FsyncCount = 140, 0 })},
		{code: "slow_fsync", severity: Critical, says: []string{"cannot stay in office"},
			has: health("s2", func(h *pb.ServerHealth) { h.FsyncP99Ms = 600 }), hasNot: func(*Facts) {}},
		{code: "log_growing", severity: Warning, says: []string{"entries 1 to 70000"},
			has:    health("s2", func(h *pb.ServerHealth) { h.LogLastIndex, h.SnapshotIndex = 70000, 100 }),
			hasNot: health("s2", func(h *pb.ServerHealth) { h.LogLastIndex, h.SnapshotIndex = 70000, 60000 })},
		{code: "snapshot_stale", severity: Notice, says: []string{"25h0m0s old, 30000 entries behind"},
			has: health("s2", func(h *pb.ServerHealth) {
				h.LogLastIndex, h.SnapshotIndex, h.SnapshotAgeMs = 31000, 1000, 25*3600*second
			}),
			hasNot: health("s2", func(h *pb.ServerHealth) { h.SnapshotAgeMs = 25 * 3600 * second })}, // an idle cluster
		{code: "open_files", severity: Warning, says: []string{"60000 of 65536"},
			has:    health("s2", func(h *pb.ServerHealth) { h.OpenFiles = 60000 }),
			hasNot: health("s2", func(h *pb.ServerHealth) { h.OpenFiles, h.MaxOpenFiles = 60000, 0 })}, // not known
		{code: "open_files", severity: Notice, says: []string{"at most 1024"},
			has: health("s2", func(h *pb.ServerHealth) { h.MaxOpenFiles = 1024 }), hasNot: func(*Facts) {}},
		{code: "no_backup", severity: Notice, says: []string{"27h0m0s", "backup save"},
			has:    health("s2", func(h *pb.ServerHealth) { h.UptimeMs = 27 * 3600 * second }),
			hasNot: health("s2", func(h *pb.ServerHealth) { h.UptimeMs = 25 * 3600 * second })},
		{code: "no_backup", severity: Notice, says: []string{"the last one 30h0m0s ago"},
			has: health("s2", func(h *pb.ServerHealth) { h.LastBackup = timestamppb.New(h.WallClock.AsTime().Add(-30 * time.Hour)) }),
			hasNot: both(health("s1", func(h *pb.ServerHealth) { h.UptimeMs = 900 * 3600 * second }),
				health("s2", func(h *pb.ServerHealth) { h.LastBackup = timestamppb.New(h.WallClock.AsTime().Add(-3 * time.Hour)) }))},
		{code: "gossip_blocked", severity: Warning, says: []string{"server s3", "s1 sees it dead"},
			has: gossipView("s1", "s3", "dead"), hasNot: gossipView("s1", "s3", "leaving")},
		{code: "gossip_blocked", severity: Warning, says: []string{"s1 sees it not at all"},
			has:    gossipView("s1", "s3", ""),
			hasNot: both(gossipView("s1", "s3", ""), health("s3", func(h *pb.ServerHealth) { h.UptimeMs = 2 * second }))}, // just started
		{code: "udp_blocked", severity: Warning, says: []string{"s2: 3 in 2s, 8 in all"},
			has: func(f *Facts) {
				f.byID("s2").First.Health.GossipUdpFailures, f.byID("s2").Second.Health.GossipUdpFailures = 5, 8
			},
			hasNot: func(f *Facts) {
				f.byID("s2").First.Health.GossipUdpFailures, f.byID("s2").Second.Health.GossipUdpFailures = 8, 8
			}},
		{code: "gossip_conflict", severity: Warning, says: []string{"same id"},
			has: health("s2", func(h *pb.ServerHealth) { h.GossipConflicts = 1 }), hasNot: func(*Facts) {}},
		{code: "gossip_strangers", severity: Notice, says: []string{"another cluster"},
			has: health("s2", func(h *pb.ServerHealth) { h.GossipStrangers = 1 }), hasNot: func(*Facts) {}},
		{code: "worker_without_gossip", severity: Warning, says: []string{"keyspace mails", "w1", "waits for the TTL, 10s"},
			has:    worker(func(w *pb.Worker) { w.Gossip = "dead" }),
			hasNot: worker(func(w *pb.Worker) { w.Gossip, w.Keyspaces = "dead", []string{"orders"} })}, // strict waits anyway
		{code: "worker_without_gossip", severity: Notice, says: []string{"switched off"},
			has: worker(func(w *pb.Worker) { w.Gossip = "off" }), hasNot: func(*Facts) {}},
		{code: "ttl_below_elections", severity: Warning, says: []string{"keyspace orders", "TTL 2s, election timeout 500ms", "--ttl 3s"},
			has: func(f *Facts) { f.Keyspaces[0].TtlMs = 2 * second }, hasNot: func(f *Facts) { f.Keyspaces[0].TtlMs = 3 * second }},
		{code: "ttl_below_pauses", severity: Warning, says: []string{"keyspace orders", "w1 stood still for 3.4s", "--ttl 11s"},
			has: worker(func(w *pb.Worker) { w.LongestPauseMs = 3400 }), hasNot: worker(func(w *pb.Worker) { w.LongestPauseMs = 3300 })},
		{code: "overruns", severity: Warning, says: []string{"w1 (2)"},
			has: worker(func(w *pb.Worker) { w.Overruns = 2 }), hasNot: func(*Facts) {}},
		{code: "renewals_late", severity: Warning, says: []string{"w1 (40 % of 10s left)"},
			has:    worker(func(w *pb.Worker) { w.RemainingMs = 4 * second }),
			hasNot: worker(func(w *pb.Worker) { w.RemainingMs, w.State = 4*second, "superseded" })},
		{code: "guard_never_seen", severity: Warning, says: []string{"w1", "no lease can promise exclusion", "README"},
			has:    func(f *Facts) { f.Workers[0].FencingChecks, f.Holding["w1"] = 0, 61*time.Second },
			hasNot: func(f *Facts) { f.Workers[0].FencingChecks, f.Holding["w1"] = 0, 59*time.Second }},
		{code: "unowned", severity: Warning, says: []string{"2 partitions of orders without an owner: the capacity of all workers is used up", "partitions 3, 17"},
			has: func(f *Facts) {
				unowned(f, "orders", "the capacity of all workers is used up", pb.PartitionState_PARTITION_STATE_UNOWNED, 3, 17)
			},
			hasNot: func(*Facts) {}},
		{code: "unowned", severity: Notice, says: []string{"is being granted"},
			has: func(f *Facts) { unowned(f, "orders", "is being granted", pb.PartitionState_PARTITION_STATE_UNOWNED, 3) }, hasNot: func(*Facts) {}},
		{code: "unowned", severity: Warning, says: []string{"no worker has joined", "leasehold run --keyspace orders"},
			has: func(f *Facts) {
				f.Workers = nil
				unowned(f, "orders", "no worker has joined the keyspace", pb.PartitionState_PARTITION_STATE_UNOWNED, 0, 1)
			},
			hasNot: func(*Facts) {}},
		{code: "quarantined", severity: Warning, says: []string{"1 partition of orders in quarantine", "partitions retry orders/17"},
			has:    func(f *Facts) { unowned(f, "orders", "failed", pb.PartitionState_PARTITION_STATE_QUARANTINED, 17) },
			hasNot: func(f *Facts) { unowned(f, "orders", "failed", pb.PartitionState_PARTITION_STATE_UNOWNED, 17) }},
		{code: "not_looked", severity: Warning, says: []string{"deadline"},
			has: func(f *Facts) { f.ListsError = errors.New("deadline") }, hasNot: func(*Facts) {}},
	} {
		t.Run(c.code, func(t *testing.T) {
			f := healthy()
			c.has(f)
			all := Examine(f)
			i := slices.IndexFunc(all, func(x *pb.Finding) bool { return x.GetCode() == c.code && x.GetSeverity() == c.severity })
			if i < 0 {
				t.Fatalf("not found; found %v", all)
			}
			x := all[i]
			text := strings.Join([]string{x.GetSubject(), x.GetWhat(), x.GetEvidence(), x.GetWhy(), x.GetNext()}, "\n")
			for _, s := range c.says {
				if !strings.Contains(text, s) {
					t.Errorf("does not say %q:\n%s", s, text)
				}
			}
			if x.GetWhat() == "" || x.GetWhy() == "" || x.GetNext() == "" || x.GetSubject() == "" {
				t.Errorf("incomplete: %v", x)
			}
			f = healthy()
			c.hasNot(f)
			for _, x := range Examine(f) {
				if x.GetCode() == c.code && x.GetSeverity() == c.severity {
					t.Errorf("found where it is not: %v", x)
				}
			}
		})
	}
}

func TestNothingToSayOfAHealthyCluster(t *testing.T) {
	if all := Examine(healthy()); len(all) != 0 || Worst(all) != "" {
		t.Errorf("found %v", all)
	}
}

// Servers that do not know GetHealth yet, in the middle of an upgrade, are no
// reason for alarms that rest on figures nobody has.
func TestServersWithoutHealth(t *testing.T) {
	f := healthy()
	f.each(func(s *Server) { s.First.Health, s.Second.Health = nil, nil })
	if all := Examine(f); len(all) != 0 {
		t.Errorf("found %v", all)
	}
}

func TestNobodyAnswers(t *testing.T) {
	f := &Facts{Servers: []Server{{Addr: "10.0.0.1:7400", Second: Look{Err: errors.New("rpc error: code = Unavailable desc = refused")}}}}
	all := Examine(f)
	if len(all) != 1 || all[0].GetCode() != "server_unreachable" || all[0].GetSeverity() != Critical || all[0].GetEvidence() != "refused" {
		t.Errorf("found %v", all)
	}
}

func TestWorstFindingsComeFirst(t *testing.T) {
	f := healthy()
	f.Workers[0].Overruns = 1
	f.byID("s1").Second.Health.MaxOpenFiles = 100
	f.drift("s2", 1.1)
	all := Examine(f)
	var order []string
	for _, x := range all {
		order = append(order, x.GetSeverity())
	}
	if Worst(all) != Critical || !slices.Equal(order, []string{Critical, Warning, Notice}) {
		t.Errorf("%v of %v", order, all)
	}
}

// keyFigures gives all servers a key store, and a change of its figures between the looks.
func keyFigures(change func(*pb.KeyFigures)) func(*Facts) {
	return func(f *Facts) {
		f.each(func(s *Server) {
			for _, l := range []*Look{&s.First, &s.Second} {
				l.Health.Keys = &pb.KeyFigures{
					Keys: 100, Bytes: 1 << 20, QuotaBytes: 100 << 20, Revision: 5000, CompactAgeMs: 3600 * second, CompactRevisions: 1_000_000,
					ValueBytesMax: 1 << 10, ValueBytesMean: 100,
				}
			}
			change(s.Second.Health.Keys)
		})
	}
}
