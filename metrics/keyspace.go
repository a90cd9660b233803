package metrics

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// MaxKeyspaces is how many keyspaces have series of their own; the rest share
// the label value "other".
const MaxKeyspaces = 32

// Keyspace is what one look at the state says of one keyspace. Owned, Unowned,
// Draining and Quarantined exclude each other and add up to the partition
// count; what is quarantined has no owner either.
type Keyspace struct {
	Name                                  string
	TTL                                   time.Duration
	Owned, Unowned, Draining, Quarantined int
}

// keyspaces keeps the series that carry the keyspace label. A name keeps its
// own label value from when it is first seen until it is no longer listed.
type keyspaces struct {
	configured *prometheus.GaugeVec
	ttl        *prometheus.GaugeVec
	partitions *prometheus.GaugeVec
	unowned    *prometheus.CounterVec
	grants     *prometheus.CounterVec

	mu    sync.Mutex
	named map[string]*spaceSeries
	rest  *spaceSeries
}

// spaceSeries are the series of one label value.
type spaceSeries struct {
	label                                 string
	configured, ttl                       prometheus.Gauge
	owned, unowned, draining, quarantined prometheus.Gauge
	unownedSeconds, grants                prometheus.Counter
}

func newKeyspaces(s *set) *keyspaces {
	k := &keyspaces{
		configured: s.gaugeVec("partitions_configured", "Partitions that the keyspace was created with.", "keyspace"),
		ttl:        s.gaugeVec("lease_ttl_seconds", "TTL that the keyspace's leases have; for other the longest.", "keyspace"),
		partitions: s.gaugeVec("partitions", "Partitions by state; the states exclude each other.", "keyspace", "state"),
		unowned: s.counterVec("partition_unowned_seconds_total",
			"Partition-seconds without an owner, counted by every server on its own clock, also without a leader.", "keyspace"),
		grants: s.counterVec("lease_grants_total", "Leases granted.", "keyspace"),
		named:  make(map[string]*spaceSeries),
	}
	k.rest = k.newSeries(other)
	return k
}

func (k *keyspaces) newSeries(label string) *spaceSeries {
	return &spaceSeries{
		label:          label,
		configured:     k.configured.WithLabelValues(label),
		ttl:            k.ttl.WithLabelValues(label),
		owned:          k.partitions.WithLabelValues(label, "owned"),
		unowned:        k.partitions.WithLabelValues(label, "unowned"),
		draining:       k.partitions.WithLabelValues(label, "draining"),
		quarantined:    k.partitions.WithLabelValues(label, "quarantined"),
		unownedSeconds: k.unowned.WithLabelValues(label),
		grants:         k.grants.WithLabelValues(label),
	}
}

func (k *keyspaces) drop(name string) {
	match := prometheus.Labels{"keyspace": name}
	k.configured.DeletePartialMatch(match)
	k.ttl.DeletePartialMatch(match)
	k.partitions.DeletePartialMatch(match)
	k.unowned.DeletePartialMatch(match)
	k.grants.DeletePartialMatch(match)
	delete(k.named, name)
}

// seriesLocked returns the series of a keyspace, giving it a label value of its
// own when one is left. A keyspace that is called "other" shares that one.
func (k *keyspaces) seriesLocked(name string) *spaceSeries {
	if s, ok := k.named[name]; ok {
		return s
	}
	if name == other || len(k.named) >= MaxKeyspaces {
		return k.rest
	}
	s := k.newSeries(name)
	k.named[name] = s
	return s
}

func (k *keyspaces) granted(name string, n int) {
	if n <= 0 {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.seriesLocked(name).grants.Add(float64(n))
}

func (k *keyspaces) observe(elapsed time.Duration, all []Keyspace) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.dropUnlistedLocked(all)
	var rest Keyspace
	for _, ks := range all {
		s := k.seriesLocked(ks.Name)
		if without := ks.Unowned + ks.Quarantined; without > 0 && elapsed > 0 {
			s.unownedSeconds.Add(float64(without) * elapsed.Seconds())
		}
		if s == k.rest {
			rest.Owned += ks.Owned
			rest.Unowned += ks.Unowned
			rest.Draining += ks.Draining
			rest.Quarantined += ks.Quarantined
			rest.TTL = max(rest.TTL, ks.TTL)
			continue
		}
		s.set(ks)
	}
	k.rest.set(rest)
}

func (k *keyspaces) dropUnlistedLocked(all []Keyspace) {
	listed := make(map[string]bool, len(all))
	for _, ks := range all {
		listed[ks.Name] = true
	}
	for name := range k.named {
		if !listed[name] {
			k.drop(name)
		}
	}
}

func (s *spaceSeries) set(ks Keyspace) {
	s.configured.Set(float64(ks.Owned + ks.Unowned + ks.Draining + ks.Quarantined))
	s.ttl.Set(ks.TTL.Seconds())
	s.owned.Set(float64(ks.Owned))
	s.unowned.Set(float64(ks.Unowned))
	s.draining.Set(float64(ks.Draining))
	s.quarantined.Set(float64(ks.Quarantined))
}
