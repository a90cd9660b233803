package demo

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// Tenure is one context: a partition held under one token in one process.
type Tenure struct {
	Process, Worker string
	Partition       uint32
	Token           uint64
	Start           time.Duration // the context became live
	Running         time.Duration // the handler ran; 0: it never did
	End             time.Duration // the context ended, or its process did
	// Pauses are spans in which the process could not notice that its deadline
	// had passed: from the deadline (or the stop, if later) until a moment
	// after it was continued. Usually none.
	Pauses []span
}

// span is the half-open interval [from, to).
type span struct{ from, to time.Duration }

func (s span) meets(o span) bool { return s.from < o.to && o.from < s.to }

// Deadlines says how long a worker may believe in its leases after an
// acknowledged keep-alive was sent.
type Deadlines struct {
	TTL time.Duration
}

// margin is what the worker takes off the TTL.
func (d Deadlines) margin() time.Duration {
	return max(d.TTL/20, 250*time.Millisecond)
}

// deadline of a process at a time, from what it had heard by then.
func (d Deadlines) deadline(records []Record, at time.Duration) time.Duration {
	var sent time.Duration
	for _, r := range records {
		if r.Kind == KindAck && r.At <= at {
			sent = max(sent, r.Sent)
		}
	}
	return sent + d.TTL - d.margin()
}

type tenureKey struct {
	partition uint32
	token     uint64
}

// Tenures reads all contexts out of the evidence, ordered by partition and
// start. Those without an end lasted until their process died, else until
// end, which is when the evidence was closed.
func Tenures(ev Evidence, d Deadlines, end time.Duration) []*Tenure {
	var all []*Tenure
	stops, deaths := stopsAndDeaths(ev[DriverProcess], end)
	for _, process := range slices.Sorted(maps.Keys(ev)) {
		if process == DriverProcess {
			continue
		}
		records := ev[process]
		death, died := deaths[process]
		if !died {
			death = end
		}
		open := map[tenureKey]*Tenure{}
		ended := map[tenureKey]bool{}
		for _, r := range records {
			key := tenureKey{r.Partition, r.Token}
			switch r.Kind {
			case KindStart:
				t := &Tenure{Process: process, Worker: r.Worker, Partition: r.Partition, Token: r.Token, Start: r.At, End: death}
				open[key] = t
				all = append(all, t)
			case KindRunning:
				if t := open[key]; t != nil {
					t.Running = r.At
				}
			case KindEnd:
				if t := open[key]; t != nil && !ended[key] {
					t.End = min(max(r.At, t.Start), death)
					ended[key] = true
				}
			}
		}
		for _, stop := range stops[process] {
			pause := span{max(stop.from, d.deadline(records, stop.from)), stop.to + d.margin()}
			for _, t := range open {
				if t.Start < stop.to && pause.from < pause.to && pause.meets(span{t.Start, t.End}) {
					t.Pauses = append(t.Pauses, pause)
				}
			}
		}
	}
	slices.SortStableFunc(all, func(a, b *Tenure) int {
		return cmp.Or(cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.Start, b.Start), cmp.Compare(a.Token, b.Token))
	})
	return all
}

// stopsAndDeaths reads what the driver did to whom.
func stopsAndDeaths(driver []Record, end time.Duration) (map[string][]span, map[string]time.Duration) {
	stops, deaths := map[string][]span{}, map[string]time.Duration{}
	for _, r := range driver {
		switch r.Kind {
		case KindStop:
			stops[r.Process] = append(stops[r.Process], span{r.At, end})
		case KindContinue:
			if s := stops[r.Process]; len(s) > 0 {
				s[len(s)-1].to = r.At
			}
		case KindDead:
			deaths[r.Process] = r.At
		}
	}
	return stops, deaths
}

// live are the spans in which the context counts: all of it but the pauses.
func (t *Tenure) live() []span {
	spans := []span{{t.Start, t.End}}
	for _, p := range t.Pauses {
		var next []span
		for _, s := range spans {
			if !s.meets(p) {
				next = append(next, s)
				continue
			}
			if s.from < p.from {
				next = append(next, span{s.from, p.from})
			}
			if p.to < s.to {
				next = append(next, span{p.to, s.to})
			}
		}
		spans = next
	}
	return spans
}
