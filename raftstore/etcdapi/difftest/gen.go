package difftest

import (
	"fmt"
	"math/rand/v2"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Generator draws the workload. What it draws depends on its seed and on what
// both sides have answered alike, and on nothing else.
type Generator struct {
	rng  *rand.Rand
	keys [][]byte
	// Revision and Compacted of both stores as last seen.
	Revision, Compacted int64
	leases              []int64 // that were granted and not yet revoked
	lastLease           int64
}

// NewGenerator returns one for two stores that are alike.
func NewGenerator(seed uint64) *Generator {
	g := &Generator{rng: rand.New(rand.NewPCG(seed, 5)), Revision: 1}
	g.keys = append(g.keys, nasty...)
	for i := range 40 {
		g.keys = append(g.keys, fmt.Appendf(nil, "k/%02d", i))
	}
	for i := range 6 {
		g.keys = append(g.keys, fmt.Appendf(nil, "k/%02d/x%d", i%3, i))
	}
	return g
}

// nasty keys: zero bytes, bytes of 0xff, one the beginning of the other.
var nasty = [][]byte{
	{0}, {0, 0}, {0, 1}, {0xff}, {0xff, 0xff}, {0xff, 0}, {0xff, 0xff, 0xff}, {'a'}, {'a', 0}, {'a', 0, 0}, {'a', 0xff},
	{'a', 0xff, 0xff}, {'a', 'b'}, {'b'}, []byte("ä€"), []byte("k"), []byte("k/"), []byte("k0"), []byte("a\nb\"'"), {0x80, 0xfe},
}

// one reports true once in n times.
func (g *Generator) one(n int) bool { return g.rng.IntN(n) == 0 }

func (g *Generator) key() []byte {
	switch {
	case g.one(400):
		return nil
	case g.one(60): // one that is hardly there
		return fmt.Appendf(nil, "r%d", g.rng.IntN(1000))
	}
	return g.keys[g.rng.IntN(len(g.keys))]
}

// end of a range that begins at key, in all its forms.
func (g *Generator) end(key []byte) []byte {
	switch g.rng.IntN(8) {
	case 0:
		return []byte{0}
	case 1, 2:
		return []byte(clientv3.GetPrefixRangeEnd(string(key)))
	case 3:
		return append(append([]byte{}, key...), 0)
	case 4, 5:
		return g.key()
	case 6:
		return []byte{0xff}
	default:
		return []byte{}
	}
}

// span is one key, a range, a prefix or everything.
func (g *Generator) span() (key, end []byte) {
	switch {
	case g.one(3):
		return g.key(), nil
	case g.one(8):
		return []byte{0}, []byte{0}
	case g.one(4):
		return []byte("k/"), []byte("k0")
	}
	key = g.key()
	return key, g.end(key)
}

func (g *Generator) value() []byte {
	switch g.rng.IntN(12) {
	case 0:
		return nil
	case 1:
		return []byte{0, 0xff, byte(g.rng.IntN(256))}
	case 2:
		long := make([]byte, g.rng.IntN(1500))
		for i := range long {
			long[i] = byte(g.rng.IntN(256))
		}
		return long
	}
	return fmt.Appendf(nil, "v%d", g.rng.IntN(20))
}

// past is a revision to read at, mostly one that can be.
func (g *Generator) past() int64 {
	switch g.rng.IntN(20) {
	case 0:
		return g.Revision + 1
	case 1:
		return g.Compacted - 1
	case 2:
		return g.Compacted
	case 3:
		return -int64(g.rng.IntN(3))
	case 4:
		return g.Revision + int64(g.rng.IntN(1000))
	}
	return g.Compacted + g.rng.Int64N(g.Revision-g.Compacted+1)
}

// number is a revision, a version or a lease to compare with.
func (g *Generator) number() int64 {
	switch g.rng.IntN(10) {
	case 0, 1, 2:
		return 0
	case 3, 4, 5:
		return int64(g.rng.IntN(6))
	case 6:
		return -1
	}
	return 1 + g.rng.Int64N(g.Revision)
}

// lease to put with: mostly none, sometimes one that does not exist.
func (g *Generator) lease() int64 {
	switch {
	case g.one(150):
		return 1 + g.rng.Int64N(1<<40)
	case g.one(500):
		return -1
	case len(g.leases) > 0 && g.one(4):
		return g.leases[g.rng.IntN(len(g.leases))]
	}
	return 0
}

func (g *Generator) rangeRequest() *pb.RangeRequest {
	r := &pb.RangeRequest{Serializable: g.one(2)}
	r.Key, r.RangeEnd = g.span()
	if g.one(3) {
		r.Revision = g.past()
	}
	if g.one(3) {
		r.Limit = int64(g.rng.IntN(12))
	}
	if g.one(200) {
		r.Limit = -1
	}
	if g.one(2) {
		r.SortOrder = pb.RangeRequest_SortOrder(g.rng.IntN(3))
		r.SortTarget = pb.RangeRequest_SortTarget(g.rng.IntN(5))
	}
	if g.one(300) {
		r.SortOrder = pb.RangeRequest_SortOrder([]int32{3, -1, 77}[g.rng.IntN(3)])
	}
	if g.one(300) {
		r.SortTarget = pb.RangeRequest_SortTarget([]int32{5, -1, 77}[g.rng.IntN(3)])
	}
	r.KeysOnly, r.CountOnly = g.one(6), g.one(8)
	for _, bound := range []*int64{&r.MinModRevision, &r.MaxModRevision, &r.MinCreateRevision, &r.MaxCreateRevision} {
		if g.one(12) {
			*bound = g.number()
		}
	}
	return r
}

func (g *Generator) putRequest() *pb.PutRequest {
	p := &pb.PutRequest{Key: g.key(), Value: g.value(), Lease: g.lease(), PrevKv: g.one(4)}
	if g.one(25) {
		p.IgnoreValue = true
		if !g.one(6) {
			p.Value = nil
		}
	}
	if g.one(25) {
		p.IgnoreLease = true
		if !g.one(6) {
			p.Lease = 0
		}
	}
	return p
}

func (g *Generator) deleteRequest() *pb.DeleteRangeRequest {
	d := &pb.DeleteRangeRequest{Key: g.key(), PrevKv: g.one(3)}
	if g.one(4) {
		d.RangeEnd = g.end(d.Key)
	}
	return d
}
