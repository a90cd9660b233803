package etcdapi

import (
	"crypto/sha256"
	"encoding/binary"
	"sync/atomic"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// identity is who answers, in etcd's numbers.
type identity struct {
	member  uint64
	cluster *atomic.Pointer[clusterNumber]
}

type clusterNumber struct {
	id string
	n  uint64
}

func newIdentity(server, store string) identity {
	return identity{member: memberID(server, store), cluster: new(atomic.Pointer[clusterNumber])}
}

// memberID is the number of a server in etcd's answers. A server with a new data
// directory is another member.
func memberID(server, store string) uint64 { return number("member/" + server + "/" + store) }

// number is never 0, which etcd's clients take for none.
func number(name string) uint64 {
	sum := sha256.Sum256([]byte(name))
	if n := binary.BigEndian.Uint64(sum[:]); n != 0 {
		return n
	}
	return 1
}

// clusterID is the number of the cluster. The state knows its name a moment
// before the store has written it down.
func (a *API) clusterID() uint64 {
	id := a.cfg.Store.ClusterID()
	if id == "" {
		a.cfg.Store.View(func(s *state.State) { id = s.ClusterID() })
	}
	if c := a.self.cluster.Load(); c != nil && c.id == id {
		return c.n
	}
	c := &clusterNumber{id, number("cluster/" + id)}
	a.self.cluster.Store(c)
	return c.n
}

// header is that of an answer of this server: revision is the store's when the
// answer was made.
func (a *API) header(revision int64) *pb.ResponseHeader {
	return &pb.ResponseHeader{
		ClusterId: a.clusterID(),
		MemberId:  a.self.member,
		Revision:  revision,
		RaftTerm:  a.cfg.Store.Term(),
	}
}

// revision is that of the keys in this server's own state.
func (a *API) revision() (rev int64) {
	a.cfg.Store.View(func(s *state.State) { rev = s.Keys().Revision() })
	return rev
}
