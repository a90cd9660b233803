package router

import (
	"slices"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
)

// take takes in one message of the watch, and returns the keyspaces that have
// to be listed because they are new.
func (r *Router) take(m *leaseholdv1.WatchEventsResponse) (unlisted []string) {
	var told []Route
	r.mu.Lock()
	for _, ev := range m.GetItems() {
		name := ev.GetKeyspace()
		t := r.tableLocked(name)
		switch {
		case !slices.Contains(r.cfg.Keyspaces, name):
			continue
		case ev.GetKind() == "keyspace_create":
			if (t == nil || t.id < ev.GetKeyspaceId()) && !slices.Contains(unlisted, name) {
				unlisted = append(unlisted, name)
			}
		case t == nil || t.id != ev.GetKeyspaceId():
			continue // of an earlier keyspace of that name, or of one about to be listed
		case ev.GetKind() == "keyspace_gone":
			told = append(told, r.removeLocked(t)...)
		default:
			r.eventLocked(t, ev)
		}
	}
	told = append(told, r.showLocked()...)
	r.revision = m.GetRevision()
	r.events.Add(uint64(len(m.GetItems())))
	r.freshenLocked(time.Duration(m.GetAgeMs()) * time.Millisecond)
	r.mu.Unlock()
	r.tell(told)
	return unlisted
}

// eventLocked takes in one event about a partition of t.
func (r *Router) eventLocked(t *table, ev *leaseholdv1.Event) {
	if ev.Partition == nil || ev.GetPartition() >= t.partitions {
		return
	}
	n := news{partition: ev.GetPartition(), index: ev.GetIndex(), token: ev.GetToken()}
	r.highest = max(r.highest, n.token)
	owner := func() { n.session, n.worker, n.endpoint = ev.GetSessionId(), ev.GetWorker(), ev.GetEndpoint() }
	switch ev.GetKind() {
	case "grant":
		owner()
	case "drain":
		owner()
		n.draining = true
	case "release", "revoke", "expire":
		n.reason = ended[ev.GetKind()]
		if c := ev.GetCause(); c != "" && c != ev.GetKind() {
			n.reason += ", " + c
		}
	case "quarantine":
		n.reason = "it is quarantined"
	case "retry":
		if t.get(n.partition).owned() {
			return // a quarantine forgotten; the owner stays
		}
		n.reason = "it is waiting for an owner"
	default:
		return
	}
	if !t.learn(n) {
		r.old.Add(1)
		return
	}
	r.wantEndpointLocked(t, n.partition)
}

// ended has the words for how a lease ended.
var ended = map[string]string{
	"release": "its owner has given it back",
	"revoke":  "it was taken from its owner",
	"expire":  "its owner's session has run out",
}

// wantEndpointLocked has an owner's endpoint asked for if the server could not
// tell.
func (r *Router) wantEndpointLocked(t *table, p uint32) {
	if at := t.get(p).place; at.worker != "" && at.key.session != 0 && !at.asked && *at.endpoint.Load() == "" {
		r.nudge()
	}
}

// showLocked publishes all changes and returns those that are to be told.
func (r *Router) showLocked() (told []Route) {
	for _, t := range r.tablesLocked() {
		for _, p := range t.show() {
			told = append(told, t.route(p, t.load(p)))
		}
	}
	return told
}

// tell calls the configured function, without the lock.
func (r *Router) tell(routes []Route) {
	for i := range routes {
		r.cfg.OnChange(routes[i])
	}
}
