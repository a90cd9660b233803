package difftest

import (
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// watchRequest draws a watch. future ones begin after the present revision.
func (g *Generator) watchRequest(future bool) *pb.WatchCreateRequest {
	w := &pb.WatchCreateRequest{PrevKv: g.one(2), Fragment: g.one(5), ProgressNotify: g.one(5)}
	w.Key, w.RangeEnd = g.span()
	if future {
		w.PrevKv = false // it is looked up when the event is sent: by then compacted, perhaps
		w.StartRevision = g.Revision + 1 + int64(g.rng.IntN(40))
		return w
	}
	switch g.rng.IntN(10) {
	case 0, 1, 2:
		w.StartRevision = g.past()
		if w.StartRevision > g.Revision+1 {
			w.StartRevision = g.Revision + 1
		}
	case 3:
		w.StartRevision = max(1, g.Revision-int64(g.rng.IntN(50)))
	case 4:
		w.StartRevision = max(0, g.Compacted+int64(g.rng.IntN(3))-1)
	}
	for range []int{0, 0, 0, 1, 1, 2}[g.rng.IntN(6)] {
		f := g.rng.IntN(2)
		if g.one(8) {
			f = 7 // there is none of this number
		}
		w.Filters = append(w.Filters, pb.WatchCreateRequest_FilterType(f))
	}
	switch g.rng.IntN(20) {
	case 0:
		w.StartRevision = 0
		w.WatchId = 100 + int64(g.rng.IntN(5)) // twice, at times
	case 1:
		w.RangeEnd = w.Key // not above the key
	case 2:
		w.Key = nil
	}
	return w
}
