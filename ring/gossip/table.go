package gossip

import (
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
)

// ForgetAfter is how long members that left or died stay in the table.
const ForgetAfter = 5 * time.Minute

// table is our own list of members. memberlist rewrites its objects in place,
// so they are copied here while its callbacks hold its lock.
type table struct {
	mu      sync.Mutex
	members map[string]*Member
	doubts  map[string]bool // members declared dead that are still to be asked
}

func newTable() *table {
	return &table{members: make(map[string]*Member), doubts: make(map[string]bool)}
}

// up records that a member is there, as the meta says. It tells whether that
// process had been taken for dead: then it was we, or the network, that failed.
func (t *table) up(n *memberlist.Node, m Meta) (returned bool) {
	status := Alive
	if m.Leaving {
		status = Leaving
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	e, ok := t.members[n.Name]
	if !ok {
		e = &Member{Name: n.Name}
		t.members[n.Name] = e
	}
	returned = (e.Status == Dead || t.doubts[n.Name]) && e.Meta.Boot == m.Boot
	delete(t.doubts, n.Name)
	if e.Status != status || e.Meta.Boot != m.Boot {
		e.Since = time.Now()
	}
	e.Addr, e.Meta, e.Status = nodeAddr(n), m, status
	return returned
}

// down records that a member has left, and tells whether that is in doubt:
// without a goodbye it keeps its status until it is revived or buried.
func (t *table) down(n *memberlist.Node) (doubt bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e, ok := t.members[n.Name]
	if !ok || !e.Up() {
		return false
	}
	if e.Meta.Leaving {
		e.Status, e.Since = Left, time.Now()
		return false
	}
	t.doubts[n.Name] = true
	return true
}

// doubted returns a member if it is in doubt.
func (t *table) doubted(name string) (Member, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e, ok := t.members[name]; ok && t.doubts[name] {
		return *e, true
	}
	return Member{}, false
}

// bury makes a member dead that is in doubt.
func (t *table) bury(name string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	e, ok := t.members[name]
	if !ok || !t.doubts[name] {
		return false
	}
	delete(t.doubts, name)
	e.Status, e.Since = Dead, time.Now()
	return true
}

// forget drops those that have been gone for ForgetAfter and tells whether
// there were any.
func (t *table) forget(now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	before := len(t.members)
	for name, e := range t.members {
		if !e.Up() && now.Sub(e.Since) >= ForgetAfter {
			delete(t.members, name)
		}
	}
	return len(t.members) != before
}

// drop takes off those that match, and tells whether there were any, and any
// that were up.
func (t *table) drop(match func(*Member) bool) (changed, up bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for name, e := range t.members {
		if match(e) {
			changed, up = true, up || e.Up()
			delete(t.members, name)
			delete(t.doubts, name)
		}
	}
	return changed, up
}

func (t *table) get(name string) (Member, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e, ok := t.members[name]
	if !ok {
		return Member{}, false
	}
	return *e, true
}

func (t *table) all() []Member {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := make([]Member, 0, len(t.members))
	for _, e := range t.members {
		all = append(all, *e)
	}
	return all
}

// counts returns how many members have each status; Status is the index.
func (t *table) counts() (n [Dead + 1]int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, e := range t.members {
		n[e.Status]++
	}
	return n
}

func nodeAddr(n *memberlist.Node) string {
	return net.JoinHostPort(n.Addr.String(), strconv.Itoa(int(n.Port)))
}
