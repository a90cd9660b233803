package controller

import (
	"context"
	"sync"

	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// proposal is one call of Propose: commands that stay together, and which
// keyspace they are of.
type proposal struct {
	space *space
	name  string
	cmds  []state.Command
}

// propose writes the plans into the log, takeovers first, in pieces that let
// keep-alives go between, a few at a time. It says whether any piece failed as
// a whole; what was refused item by item is planned anew in a moment.
func (t *term) propose(ctx context.Context, plans []*planned) (failed bool) {
	var queue []proposal
	for _, p := range plans {
		queue = append(queue, takeovers(p)...)
	}
	for _, p := range plans {
		queue = append(queue, grants(p)...)
		queue = append(queue, drains(p)...)
	}
	if len(queue) == 0 {
		return false
	}
	type outcome struct {
		results []state.Result
		err     error
	}
	outcomes := make([]outcome, len(queue))
	var wait sync.WaitGroup
	slots := make(chan struct{}, maxPipeline)
	for i := range queue {
		slots <- struct{}{}
		wait.Go(func() {
			defer func() { <-slots }()
			outcomes[i].results, outcomes[i].err = t.p.Propose(ctx, queue[i].cmds...)
		})
	}
	wait.Wait()

	refused := make(map[*space]int)
	for i, q := range queue {
		if err := outcomes[i].err; err != nil {
			failed = true
			q.space.dirty = true
			if ctx.Err() == nil {
				t.log.Warn("plan could not be proposed", "keyspace", q.name, "cause", err)
			}
			continue
		}
		refused[q.space] += t.refusals(q, outcomes[i].results)
	}
	for _, p := range plans {
		if refused[p.space] == 0 {
			p.space.refusals = 0
			continue
		}
		p.space.refusals++
		p.space.dirty = true
	}
	return failed
}

// refusals counts what the state machine would not do: the plan was made from
// a view that is not true any more.
func (t *term) refusals(q proposal, results []state.Result) int {
	n, grants := 0, 0
	var first error
	for i, r := range results {
		grant, isGrant := q.cmds[i].(*state.Grant)
		if r.Err != nil {
			n++
			first = r.Err
			if isGrant {
				grants += len(grant.Items)
			}
		}
		for _, err := range r.Items {
			if err != nil {
				n++
				first = err
				if isGrant {
					grants++
				}
			}
		}
	}
	t.c.cfg.Metrics.Refused(q.name, grants)
	if n > 0 {
		t.log.Debug("plan was refused in part", "keyspace", q.name, "items", n, "cause", first)
	}
	return n
}

// takeovers puts each revoked lease into the same entry as its next grant, so
// that there is no moment between them.
func takeovers(p *planned) (queue []proposal) {
	if len(p.out.Revokes) == 0 {
		return nil
	}
	next := make(map[uint32]Grant, len(p.out.Revokes))
	for _, r := range p.out.Revokes {
		next[r.Partition] = Grant{}
	}
	rest := p.out.Grants[:0:0]
	for _, g := range p.out.Grants {
		if _, ok := next[g.Partition]; ok {
			next[g.Partition] = g
		} else {
			rest = append(rest, g)
		}
	}
	for todo := p.out.Revokes; len(todo) > 0; {
		piece := todo[:min(len(todo), chunkItems/2)]
		todo = todo[len(piece):]
		b := builder{id: p.view.id}
		for _, r := range piece {
			b.revoke(r)
		}
		for _, r := range piece {
			if g := next[r.Partition]; g.Session != 0 {
				b.grant(g)
			}
		}
		queue = append(queue, proposal{p.space, p.view.name, b.cmds})
	}
	p.out.Grants = rest
	return queue
}

func grants(p *planned) (queue []proposal) {
	for todo := p.out.Grants; len(todo) > 0; {
		piece := todo[:min(len(todo), chunkItems)]
		todo = todo[len(piece):]
		b := builder{id: p.view.id, left: len(piece)}
		for _, g := range piece {
			b.grant(g)
			b.left--
		}
		queue = append(queue, proposal{p.space, p.view.name, b.cmds})
	}
	return queue
}

func drains(p *planned) (queue []proposal) {
	for todo := p.out.Drains; len(todo) > 0; {
		piece := todo[:min(len(todo), chunkItems)]
		todo = todo[len(piece):]
		b := builder{id: p.view.id, settings: p.view.settings}
		for _, d := range piece {
			b.drain(d)
		}
		queue = append(queue, proposal{p.space, p.view.name, b.cmds})
	}
	return queue
}

// builder gathers items of one cause into one command. There are few causes.
type builder struct {
	id       state.KeyspaceID
	settings state.Settings
	left     int // grants still to come in this piece
	cmds     []state.Command
}

func (b *builder) revoke(r Revoke) {
	item := state.RevokeItem{Partition: r.Partition, Session: r.Session, Token: r.Token}
	for _, c := range b.cmds {
		if c, ok := c.(*state.Revoke); ok && c.Cause == r.Cause {
			c.Items = append(c.Items, item)
			return
		}
	}
	b.cmds = append(b.cmds, &state.Revoke{Keyspace: b.id, Cause: r.Cause, Items: []state.RevokeItem{item}})
}

func (b *builder) grant(g Grant) {
	item := state.GrantItem{Partition: g.Partition, LastToken: g.LastToken, Session: g.Session}
	for _, c := range b.cmds {
		if c, ok := c.(*state.Grant); ok && c.Cause == g.Cause {
			c.Items = append(c.Items, item)
			return
		}
	}
	// Most pieces have one cause: room for all that is left of this one.
	items := append(make([]state.GrantItem, 0, b.left), item)
	b.cmds = append(b.cmds, &state.Grant{Keyspace: b.id, Cause: g.Cause, Items: items})
}

func (b *builder) drain(d Drain) {
	item := state.DrainItem{Partition: d.Partition, Token: d.Token, Target: d.Target, Reserve: d.Reserve}
	for _, c := range b.cmds {
		if c, ok := c.(*state.Drain); ok && c.Cause == d.Cause {
			c.Items = append(c.Items, item)
			return
		}
	}
	b.cmds = append(b.cmds, &state.Drain{Keyspace: b.id, Cause: d.Cause, Timeout: b.settings.HandoffTimeout, Items: []state.DrainItem{item}})
}
