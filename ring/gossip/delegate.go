package gossip

import (
	"fmt"

	"github.com/hashicorp/memberlist"
)

// delegate receives memberlist's callbacks. Events, NotifyAlive and
// NotifyConflict come with memberlist's lock held: they must not block and must
// not call memberlist.
type delegate struct{ g *Gossip }

// NodeMeta implements memberlist.Delegate. The length was checked when the
// meta was set; memberlist would panic on a longer one.
func (d *delegate) NodeMeta(int) []byte { return *d.g.metaBytes.Load() }

// NotifyMsg implements memberlist.Delegate: a probe message. The buffer is used
// again after the return; decoding copies.
func (d *delegate) NotifyMsg(b []byte) { d.g.receive(b) }

// GetBroadcasts implements memberlist.Delegate; we broadcast nothing.
func (d *delegate) GetBroadcasts(int, int) [][]byte { return nil }

// LocalState implements memberlist.Delegate; all that members say is in their
// meta.
func (d *delegate) LocalState(bool) []byte { return nil }

// MergeRemoteState implements memberlist.Delegate.
func (d *delegate) MergeRemoteState([]byte, bool) {}

// NotifyJoin implements memberlist.EventDelegate.
func (d *delegate) NotifyJoin(n *memberlist.Node) { d.up(n) }

// NotifyUpdate implements memberlist.EventDelegate.
func (d *delegate) NotifyUpdate(n *memberlist.Node) { d.up(n) }

func (d *delegate) up(n *memberlist.Node) {
	m, err := d.check(n)
	if err != nil {
		return // NotifyAlive has refused it already
	}
	if d.g.table.up(n, m) {
		d.g.seeker.noteReturn()
	}
	d.g.noteChange()
}

// NotifyLeave implements memberlist.EventDelegate: left or dead, our table
// knows which.
func (d *delegate) NotifyLeave(n *memberlist.Node) {
	d.g.table.down(n)
	d.g.noteChange()
}

// NotifyAlive implements memberlist.AliveDelegate. An error keeps the member
// out. It is asked for each message, so strangers that were told of by others
// are refused as well.
func (d *delegate) NotifyAlive(n *memberlist.Node) error {
	if _, err := d.check(n); err != nil {
		d.g.cfg.Observer.Rejected(rejectedStranger)
		return err
	}
	return nil
}

// NotifyMerge implements memberlist.MergeDelegate: a join through somebody who
// knows only strangers is refused as a whole, so that both ends hear why.
func (d *delegate) NotifyMerge(peers []*memberlist.Node) error {
	var refused error
	for _, n := range peers {
		_, err := d.check(n)
		if err == nil {
			return nil
		}
		refused = fmt.Errorf("refuse to join %.64q: %w", n.Name, err)
	}
	return refused
}

func (d *delegate) check(n *memberlist.Node) (Meta, error) {
	m, err := decodeMeta(d.g.cfg.Label, n.Meta)
	if err != nil {
		return m, err
	}
	return m, m.checkName(n.Name)
}

// NotifyConflict implements memberlist.ConflictDelegate: other claims the name
// of existing from another address. When it is about our own name and the other
// one is older, the others still remember our predecessor at its old address
// (a pod that was started anew): the seeker insists until they do not.
func (d *delegate) NotifyConflict(existing, other *memberlist.Node) {
	d.g.cfg.Observer.Conflict()
	if other.Name == d.g.cfg.Name {
		d.g.seeker.contest()
	}
}
