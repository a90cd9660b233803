package gossip

import (
	"context"
	"strings"
	"time"

	"github.com/hashicorp/memberlist"
)

// memberlist declares somebody dead when a few probes were not answered and the
// protest did not arrive within a third of a second. Where every third packet is
// lost that happens to the living all the time. So its word makes us ask once
// more, in every way there is, and only silence makes a death. Who answers is
// told of its death, and protests.
const (
	// confirmPatience is for how long we listen, once more for each point of
	// memberlist's health score: then it is our own hearing that is in doubt.
	confirmPatience    = 250 * time.Millisecond
	maxConfirmPatience = time.Second
	// refusedPatience is left for packets when nobody listens for streams: the
	// process has ended, or a firewall refuses for it.
	refusedPatience = 60 * time.Millisecond
	// reviveTries is how often a member that answers is told that it is dead;
	// it needs reviveWait to protest.
	reviveTries = 5
	reviveWait  = 500 * time.Millisecond
	maxConfirms = 32 // at once
)

// confirmLoop asks those that memberlist has declared dead.
func (g *Gossip) confirmLoop(ctx context.Context) {
	slots := make(chan struct{}, maxConfirms)
	for {
		var name string
		select {
		case <-ctx.Done():
			return
		case name = <-g.doubts:
		}
		select {
		case <-ctx.Done():
			return
		case slots <- struct{}{}:
		}
		if !g.spawn(func() { defer func() { <-slots }(); g.confirm(ctx, name) }) {
			return
		}
	}
}

// confirm ends the doubt about a member, one way or the other.
func (g *Gossip) confirm(ctx context.Context, name string) {
	for range reviveTries {
		m, doubted := g.table.doubted(name)
		ml := g.ml.Load()
		if ml == nil || !doubted {
			return
		}
		if !g.stillThere(ctx, ml, m) {
			break
		}
		if _, err := ml.Join([]string{m.Addr}); err != nil {
			g.log.Debug("gossip: tell a member that it is taken for dead", "member", name, "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(reviveWait):
		}
	}
	if g.table.bury(name) {
		g.noteChange()
	}
}

// stillThere asks m by packet and by stream, and others about it. It is true
// when ctx ends: that is no silence.
func (g *Gossip) stillThere(ctx context.Context, ml *memberlist.Memberlist, m Member) bool {
	patience := min(confirmPatience*time.Duration(1+ml.GetHealthScore()), maxConfirmPatience)
	q := g.questions.open()
	defer g.questions.close(q)
	until := time.Now().Add(patience)
	refused := make(chan struct{})
	g.spawn(func() { g.ping(ml, m, q, until) })
	g.askOthers(ml, m, q)
	g.spawn(func() {
		err := g.sendStream(ml, m, message{kind: kindPing, id: q.id, from: g.cfg.Name, target: m.Name})
		if err != nil && strings.Contains(err.Error(), "refused") {
			close(refused)
		}
	})
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		select {
		case <-q.answered:
			return true
		case <-ctx.Done():
			return true
		case <-timer.C:
			return false
		case <-refused:
			refused = nil
			timer.Reset(min(refusedPatience, time.Until(until)))
		}
	}
}
