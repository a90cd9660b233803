package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const namespace = "leasehold"

// other is the label value that gathers what has no value of its own.
const other = "other"

// set is a list of collectors that acts as one.
type set []prometheus.Collector

// Describe implements prometheus.Collector.
func (s set) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range s {
		c.Describe(ch)
	}
}

// Collect implements prometheus.Collector.
func (s set) Collect(ch chan<- prometheus.Metric) {
	for _, c := range s {
		c.Collect(ch)
	}
}

func (s *set) gauge(name, help string) prometheus.Gauge {
	g := prometheus.NewGauge(prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help})
	*s = append(*s, g)
	return g
}

func (s *set) counter(name, help string) prometheus.Counter {
	c := prometheus.NewCounter(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help})
	*s = append(*s, c)
	return c
}

func (s *set) histogram(name, help string, buckets []float64) prometheus.Histogram {
	h := prometheus.NewHistogram(prometheus.HistogramOpts{Namespace: namespace, Name: name, Help: help, Buckets: buckets})
	*s = append(*s, h)
	return h
}

func (s *set) gaugeVec(name, help string, labels ...string) *prometheus.GaugeVec {
	v := prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help}, labels)
	*s = append(*s, v)
	return v
}

func (s *set) counterVec(name, help string, labels ...string) *prometheus.CounterVec {
	v := prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help}, labels)
	*s = append(*s, v)
	return v
}

// counters is a counter with one label whose values are all known when it is
// made. Looking one up takes no lock.
type counters map[string]prometheus.Counter

// counters makes the counter with a series for each of values and for "other".
func (s *set) counters(name, help, label string, values ...string) counters {
	v := s.counterVec(name, help, label)
	m := make(counters, len(values)+1)
	for _, value := range append(values[:len(values):len(values)], other) {
		m[value] = v.WithLabelValues(value)
	}
	return m
}

// known makes a counter whose label has all the values that it will ever have: an
// unknown one is ignored, there is no series that gathers them.
func (s *set) known(name, help, label string, values ...string) counters {
	v := s.counterVec(name, help, label)
	m := make(counters, len(values))
	for _, value := range values {
		m[value] = v.WithLabelValues(value)
	}
	return m
}

func (m counters) add(value string, n int) {
	if n <= 0 {
		return // a counter panics when it is told to go back
	}
	c, ok := m[value]
	if !ok {
		c, ok = m[other]
	}
	if ok {
		c.Add(float64(n))
	}
}

// gauges is a gauge with one label of fixed values.
type gauges map[string]prometheus.Gauge

func (s *set) gauges(name, help, label string, values ...string) gauges {
	v := s.gaugeVec(name, help, label)
	m := make(gauges, len(values))
	for _, value := range values {
		m[value] = v.WithLabelValues(value)
	}
	return m
}

// histograms is a histogram with one label of fixed values. Each costs a dozen
// series, so "other" is one of them only where it is listed; elsewhere an
// unknown value is ignored.
type histograms map[string]prometheus.Observer

func (s *set) histograms(name, help, label string, buckets []float64, values ...string) histograms {
	v := prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: namespace, Name: name, Help: help, Buckets: buckets}, []string{label})
	*s = append(*s, v)
	m := make(histograms, len(values))
	for _, value := range values {
		m[value] = v.WithLabelValues(value)
	}
	return m
}

func (m histograms) observe(value string, d time.Duration) {
	h, ok := m[value]
	if !ok {
		h, ok = m[other]
	}
	if ok {
		h.Observe(d.Seconds())
	}
}

func boolGauge(g prometheus.Gauge, on bool) {
	if on {
		g.Set(1)
	} else {
		g.Set(0)
	}
}

// Buckets, in seconds but for the last. diskBuckets spans an NVMe flush to a
// disk that hangs, callBuckets what goes over a network, changeBuckets a handoff
// on a LAN to a takeover after the longest usual TTL. Each bucket is a series:
// there is none that no alert and no eye tells from its neighbour.
var (
	diskBuckets   = []float64{.00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 5}
	callBuckets   = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 5}
	changeBuckets = []float64{.01, .025, .05, .1, .25, .5, 1, 2, 5, 10, 20, 60}
	marginBuckets = []float64{.05, .1, .2, .3, .4, .5, .6, .7, .8, .9}
)
