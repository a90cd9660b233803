package demo

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// step waits for calm, so that what follows is this step's doing, and does it.
func (d *driver) step(ctx context.Context, s Step) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(s.Calm):
	}
	ctx, cancel := context.WithTimeoutCause(ctx, 2*patience, fmt.Errorf("not within %v", 2*patience))
	defer cancel()
	switch s.Action {
	case ActionJoin:
		return d.join(ctx, s.Worker)
	case ActionLeave:
		return d.leave(ctx, s.Worker)
	case ActionKillLeader:
		return d.killLeader(ctx)
	case ActionCrash:
		return d.crash(ctx, s.Worker)
	case ActionZombie:
		return d.zombie(ctx, s.Worker, s.Pick)
	case ActionRolling:
		return d.rolling(ctx, s.Workers)
	}
	return fmt.Errorf("unknown action %q", s.Action)
}

// join adds a worker and waits until it has its share.
func (d *driver) join(ctx context.Context, id string) error {
	d.story.Step("%s joins", id)
	before, began := d.snapshot(), Now()
	m, err := d.Fleet.Start(id)
	if err != nil {
		return err
	}
	err = d.Board.Wait(ctx, func(v *View) bool { return v.Seen(m.Process.Name, KindRunning) > 0 })
	if err != nil {
		return fmt.Errorf("wait until %s is given a partition: %w", id, err)
	}
	if err := d.Fleet.Owned(ctx, true, 300*time.Millisecond); err != nil {
		return err
	}
	d.story.Moves(d.moves(before, began))
	d.story.Note("balanced: %s", d.holdings())
	return nil
}

// leave has a worker hand over everything and end.
func (d *driver) leave(ctx context.Context, id string) error {
	m := d.Fleet.Member(id)
	d.story.Step("%s leaves", d.describe(m))
	before, began := d.snapshot(), Now()
	if err := d.Fleet.Leave(ctx, m); err != nil {
		return err
	}
	if err := d.Fleet.Owned(ctx, true, 0); err != nil {
		return err
	}
	d.story.Moves(d.moves(before, began))
	return nil
}

// killLeader ends the leading server, watches what moves, and brings the
// server back.
func (d *driver) killLeader(ctx context.Context) error {
	if err := d.Fleet.Owned(ctx, true, 500*time.Millisecond); err != nil {
		return err
	}
	leader, err := d.Cluster.Leader(ctx)
	if err != nil {
		return err
	}
	d.story.Step("kill -9 of %s, which leads", leader.ID)
	before, killed := d.snapshot(), Now()
	d.Record.Write(Record{At: killed, Kind: KindLeaderKill})
	if err := d.Cluster.Kill(leader); err != nil {
		return err
	}
	if err := d.Board.Wait(ctx, func(v *View) bool { return v.Acked() >= killed }); err != nil {
		return fmt.Errorf("wait for a keep-alive after the leader's death: %w", err)
	}
	d.story.Note("a keep-alive is acknowledged again after %s", rounded(Now()-killed))
	next, err := d.Cluster.Leader(ctx)
	if err != nil {
		return err
	}
	if err := d.Cluster.Restart(ctx, leader); err != nil {
		return err
	}
	// Whoever would have been thought dead is so by now.
	if err := d.sleepUntil(ctx, killed+ttl+time.Second/2); err != nil {
		return err
	}
	d.Record.Write(Record{Kind: KindLeaderSettled})
	moves := d.moves(before, killed)
	d.story.Note("%s leads, %s is back as a follower; %d partitions moved", next.ID, leader.ID, len(moves))
	d.story.Moves(moves)
	return nil
}

// crash ends a worker with SIGKILL.
func (d *driver) crash(ctx context.Context, id string) error {
	m := d.Fleet.Member(id)
	d.story.Step("kill -9 of %s", d.describe(m))
	before := d.snapshot()
	at, err := d.Fleet.Kill(ctx, m)
	if err != nil {
		return err
	}
	if err := d.Fleet.Owned(ctx, false, 0); err != nil {
		return err
	}
	d.story.Moves(d.moves(before, at))
	return nil
}

// zombie stops a worker between the look at its lease and its write, past its
// TTL, and lets it go on. Nobody is stopped inside a transaction: the driver
// holds the ledger's write lock at that moment.
func (d *driver) zombie(ctx context.Context, id string, pick uint64) error {
	if err := d.Fleet.Owned(ctx, false, 200*time.Millisecond); err != nil {
		return err
	}
	m := d.Fleet.Member(id)
	var held []uint32
	d.Board.Look(func(v *View) { held = v.HeldBy(m.Process.Name) })
	if len(held) == 0 {
		return fmt.Errorf("%s holds no partition", id)
	}
	p := held[pick%uint64(len(held))]
	who, before := d.describe(m), d.snapshot()
	token, stopped, err := d.Fleet.Freeze(ctx, m, p, d.Ledger)
	if err != nil {
		return err
	}
	d.story.Step("SIGSTOP of %s: orders/%d is about to be written under token %d", who, p, token)
	err = d.Board.Wait(ctx, func(v *View) bool { o := v.Owner(p); return o.Token > token && o.Wrote })
	if err != nil {
		return fmt.Errorf("wait for the next owner of orders/%d: %w", p, err)
	}
	d.story.Moves(d.moves(before, stopped))
	var owner Holding
	d.Board.Look(func(v *View) { owner = v.Owner(p) })
	d.story.Note("orders/%d: %s writes under token %d", p, owner.Worker, owner.Token)
	if err := d.sleepUntil(ctx, stopped+ttl+time.Second/2); err != nil {
		return err
	}
	d.story.Step("SIGCONT of %s: its handler goes on with token %d", id, token)
	if err := d.Fleet.Thaw(m, p); err != nil {
		return err
	}
	err = d.Board.Wait(ctx, func(v *View) bool {
		return v.Returned(m.Process.Name, token)
	})
	if err != nil {
		return fmt.Errorf("wait for the end of the stopped handler: %w", err)
	}
	var rejected int
	d.Board.Look(func(v *View) { rejected = v.Seen(m.Process.Name, KindRejected) })
	if rejected > 0 {
		d.story.Note("%d of its writes are rejected: the ledger has seen a higher token", rejected)
	} else {
		d.story.Note("its write is accepted: nothing looks at the token")
	}
	return nil
}

// rolling restarts the workers one by one under their old ids.
func (d *driver) rolling(ctx context.Context, ids []string) error {
	if err := d.Fleet.Owned(ctx, true, 500*time.Millisecond); err != nil {
		return err
	}
	d.story.Step("rolling restart of %s", strings.Join(ids, ", "))
	for _, id := range ids {
		if err := d.restart(ctx, id); err != nil {
			return fmt.Errorf("restart %s: %w", id, err)
		}
	}
	return nil
}

func (d *driver) restart(ctx context.Context, id string) error {
	m := d.Fleet.Member(id)
	before, began := d.snapshot(), d.Fleet.Mark(KindRestart, m)
	if err := d.Fleet.Terminate(ctx, m); err != nil {
		return err
	}
	if _, err := d.Fleet.Start(id); err != nil {
		return err
	}
	err := d.Fleet.Owned(ctx, false, 0)
	d.Record.Write(Record{Kind: KindRestarted, Process: m.Process.Name, Worker: id})
	if err != nil {
		return err
	}
	moves := d.moves(before, began)
	strangers := slices.DeleteFunc(slices.Clone(moves), func(m Move) bool { return m.To.Worker == m.From.Worker })
	d.story.Note("%s is back after %s with %d partitions, %d went elsewhere", id, rounded(Now()-began), len(moves)-len(strangers), len(strangers))
	d.story.Moves(strangers)
	return nil
}

// sleepUntil waits for a time on the shared clock.
func (d *driver) sleepUntil(ctx context.Context, at time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(at - Now()):
		return nil
	}
}

// snapshot is who runs what.
func (d *driver) snapshot() (owners []Holding) {
	d.Board.Look(func(v *View) { owners = v.Owners() })
	return owners
}

// moves are the partitions whose newest owner is another than before.
func (d *driver) moves(before []Holding, began time.Duration) []Move {
	var moves []Move
	for p, o := range d.snapshot() {
		if o.Token > before[p].Token {
			moves = append(moves, Move{Partition: uint32(p), From: before[p], To: o, Took: o.Since - began})
		}
	}
	return moves
}

// describe names a worker and what it holds.
func (d *driver) describe(m *Member) string {
	var n int
	d.Board.Look(func(v *View) { n = len(v.HeldBy(m.Process.Name)) })
	return fmt.Sprintf("%s (pid %d, %d partitions)", m.ID, m.Process.Pid(), n)
}

// holdings is how many partitions each worker runs.
func (d *driver) holdings() string {
	var parts []string
	for _, name := range d.Fleet.Processes() {
		id, _, _ := strings.Cut(name, ".")
		d.Board.Look(func(v *View) { parts = append(parts, fmt.Sprintf("%s %d", id, len(v.HeldBy(name)))) })
	}
	return strings.Join(parts, ", ")
}
