package etcdapi

import (
	"github.com/leasehold-dev/leasehold/metrics"
	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// Observe sets the gauges of the keys from this server's own state. Whoever runs
// the server calls it now and then.
func (a *API) Observe() {
	k := metrics.Keys{Quota: a.cfg.QuotaBytes}
	a.cfg.Store.View(func(s *state.State) {
		keys := s.Keys()
		k.Revision, k.Compacted, k.Count, k.Bytes = keys.Revision(), keys.Compacted(), keys.Len(), keys.Size()
	})
	a.cfg.Metrics.ObserveKeys(k)
	a.cfg.Metrics.Watchers(a.hub.size())
	a.cfg.Metrics.WatchesCompacted(int(a.hub.lost.Swap(0)))
}
