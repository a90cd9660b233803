package metrics

import "github.com/prometheus/client_golang/prometheus"

// Keys are the figures of the store of keys, as every server has it.
type Keys struct {
	Revision, Compacted int64 // the newest revision, and the last compacted one
	Count               int   // keys that are there now
	Bytes, Quota        int64 // of keys and their history; Quota 0: none
}

// keys are the series of the coordination API.
type keys struct {
	revision, compacted, count, bytes, quota prometheus.Gauge
	watchers, streams                        prometheus.Gauge
	behind                                   prometheus.Gauge
	compactedWatches                         prometheus.Counter
}

func (k *keys) add(s *set) {
	k.revision = s.gauge("kv_revision", "Revision of the last change of a key, in this server's own state.")
	k.compacted = s.gauge("kv_compact_revision", "Revision below which nothing can be read any more.")
	k.count = s.gauge("kv_keys", "Keys that are there now.")
	k.bytes = s.gauge("kv_size_bytes", "About what the keys and their history take in memory.")
	k.quota = s.gauge("kv_quota_bytes", "Size of keys and history from which on puts are refused; 0: none.")
	k.watchers = s.gauge("kv_watchers", "Watches of keys that this server serves.")
	k.streams = s.gauge("kv_watch_streams", "Streams that these watches are in.")
	k.behind = s.gauge("kv_watchers_behind", "Watches that have not been told of the newest revision yet: their clients read slowly, or they began in the past.")
	k.compactedWatches = s.counter("kv_watches_compacted_total", "Watches that were ended because what they had to tell next had been compacted.")
}

// ObserveKeys sets the gauges of the keys.
func (s *Server) ObserveKeys(k Keys) {
	if s == nil {
		return
	}
	s.keys.revision.Set(float64(k.Revision))
	s.keys.compacted.Set(float64(k.Compacted))
	s.keys.count.Set(float64(k.Count))
	s.keys.bytes.Set(float64(k.Bytes))
	s.keys.quota.Set(float64(k.Quota))
}

// Watchers is how many watches of keys there are, streams that they are in, and
// watches that are behind.
func (s *Server) Watchers(watchers, streams, behind int) {
	if s == nil {
		return
	}
	s.keys.watchers.Set(float64(watchers))
	s.keys.streams.Set(float64(streams))
	s.keys.behind.Set(float64(behind))
}

// WatchesCompacted counts n watches that could not go on.
func (s *Server) WatchesCompacted(n int) {
	if s != nil && n > 0 {
		s.keys.compactedWatches.Add(float64(n))
	}
}
