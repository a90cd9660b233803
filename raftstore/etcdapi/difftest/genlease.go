package difftest

import (
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// ttls to ask for: all that lives must outlive the run.
var ttls = []int64{600, 1000, 3600, 100_000, 9_000_000_000}

// badTTLs are refused.
var badTTLs = []int64{9_000_000_001, 1 << 62}

// leaseCall draws one of the calls about leases.
func (g *Generator) leaseCall() *Call {
	switch n := g.rng.IntN(10); {
	case n < 3 && len(g.leases) < 12:
		return &Call{Method: methodGrant, Req: g.grantRequest()}
	case n < 5:
		id := g.someLease()
		g.leases = slices.DeleteFunc(g.leases, func(l int64) bool { return l == id })
		return &Call{Method: methodRevoke, Req: &pb.LeaseRevokeRequest{ID: id}}
	case n < 7:
		return &Call{Method: methodTimeToLive, Req: &pb.LeaseTimeToLiveRequest{ID: g.someLease(), Keys: g.one(2)}}
	case n < 8:
		return &Call{Method: methodLeases, Req: &pb.LeaseLeasesRequest{}}
	default:
		return &Call{Method: methodKeepAlive, Req: &pb.LeaseKeepAliveRequest{ID: g.someLease()}}
	}
}

// grantRequest asks for an id by itself: sometimes one that exists.
func (g *Generator) grantRequest() *pb.LeaseGrantRequest {
	if g.one(12) {
		return &pb.LeaseGrantRequest{ID: g.someLease(), TTL: badTTLs[g.rng.IntN(len(badTTLs))]}
	}
	if len(g.leases) > 0 && g.one(6) {
		return &pb.LeaseGrantRequest{ID: g.someLease(), TTL: ttls[0]}
	}
	g.lastLease += 1 + g.rng.Int64N(1000)
	g.leases = append(g.leases, g.lastLease)
	return &pb.LeaseGrantRequest{ID: g.lastLease, TTL: ttls[g.rng.IntN(len(ttls))]}
}

// someLease is mostly one that exists.
func (g *Generator) someLease() int64 {
	if len(g.leases) == 0 || g.one(8) {
		return 1 + g.rng.Int64N(drawnLease)
	}
	return g.leases[g.rng.IntN(len(g.leases))]
}
