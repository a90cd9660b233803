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
}

func newTable() *table { return &table{members: make(map[string]*Member)} }

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
	returned = e.Status == Dead && e.Meta.Boot == m.Boot
	if e.Status != status || e.Meta.Boot != m.Boot {
		e.Since = time.Now()
	}
	e.Addr, e.Meta, e.Status = nodeAddr(n), m, status
	return returned
}

// down records that a member is gone.
func (t *table) down(n *memberlist.Node) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e, ok := t.members[n.Name]
	if !ok || !e.Up() {
		return
	}
	if e.Meta.Leaving {
		e.Status = Left
	} else {
		e.Status = Dead
	}
	e.Since = time.Now()
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
