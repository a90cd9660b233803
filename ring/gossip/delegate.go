package gossip

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/hashicorp/memberlist"
)

// delegate receives memberlist's callbacks. Events, NotifyAlive and
// NotifyConflict come with memberlist's lock held: they must not block and must
// not call memberlist.
type delegate struct {
	g *Gossip
	// retired is set when its memberlist has been replaced: what that one still
	// finds out must not reach the table.
	retired atomic.Bool
}

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
	if d.retired.Load() {
		return
	}
	m, err := d.check(n)
	if err != nil {
		signal(d.g.again) // NotifyAlive took it: we have learned our cluster since
		return
	}
	if d.g.table.up(n, m) {
		d.g.seeker.noteReturn()
		d.g.cfg.Observer.Bounced()
	}
	d.g.noteChange()
}

// NotifyLeave implements memberlist.EventDelegate: left or dead, our table
// knows which.
func (d *delegate) NotifyLeave(n *memberlist.Node) {
	if d.retired.Load() {
		return
	}
	if !d.g.table.down(n) {
		d.g.noteChange()
		return
	}
	select {
	case d.g.doubts <- n.Name:
	default: // too many at once to ask them all
		d.g.table.bury(n.Name)
		d.g.noteChange()
	}
}

// NotifyAlive implements memberlist.AliveDelegate. An error keeps the member
// out. It is asked for each message, so strangers that were told of by others
// are refused as well.
func (d *delegate) NotifyAlive(n *memberlist.Node) error {
	if d.retired.Load() {
		return errRetired
	}
	if _, err := d.check(n); err != nil {
		d.g.refused()
		return err
	}
	return nil
}

var errRetired = errors.New("gossip has started over")

// NotifyMerge implements memberlist.MergeDelegate: a join through somebody who
// knows only strangers is refused as a whole, so that both ends hear why. It
// also keeps out what they say of the dead, for which nobody is asked: theirs
// may have the names of our living.
func (d *delegate) NotifyMerge(peers []*memberlist.Node) error {
	if d.retired.Load() {
		return errRetired
	}
	var refused error
	for _, n := range peers {
		_, err := d.check(n)
		if err == nil && (n.State == memberlist.StateAlive || n.State == memberlist.StateSuspect) {
			return nil
		}
		if err != nil {
			refused = fmt.Errorf("refuse to join %.64q: %w", n.Name, err)
		}
	}
	if refused != nil {
		d.g.refused()
	}
	return refused
}

func (d *delegate) check(n *memberlist.Node) (Meta, error) {
	m, err := decodeMeta(d.g.cfg.Label, n.Meta)
	if err != nil {
		return m, err
	}
	if err := m.checkName(n.Name); err != nil {
		return m, err
	}
	return m, d.g.checkCluster(n, m)
}

// NotifyConflict implements memberlist.ConflictDelegate: other claims the name
// of existing from another address. When it is about our own name and the other
// one is older, the others still remember our predecessor at its old address
// (a pod that was started anew): the seeker insists until they do not.
func (d *delegate) NotifyConflict(existing, other *memberlist.Node) {
	if d.retired.Load() {
		return
	}
	d.g.stats.conflicts.Add(1)
	d.g.cfg.Observer.Conflict()
	mine := other.Name == d.g.cfg.Name
	if mine {
		d.g.seeker.contest()
	}
	if d.g.cfg.OnConflict == nil {
		return
	}
	c := Conflict{Name: other.Name, Mine: mine, Addr: nodeAddr(existing), OtherAddr: nodeAddr(other)}
	// The checks passed when memberlist took existing, and for other just now.
	c.Meta, _ = decodeMeta(d.g.cfg.Label, existing.Meta)
	c.OtherMeta, _ = decodeMeta(d.g.cfg.Label, other.Meta)
	select {
	case d.g.conflicts <- c:
	default: // the same ones come again while they last
	}
}
