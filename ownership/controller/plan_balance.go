package controller

import (
	"iter"
	"math"
	"slices"

	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// even moves partitions that have a good owner: back to a worker that returned,
// and from the heaviest to those that have too little.
func (p *planner) even() {
	var live []int32
	total := 0
	for i := range p.in.Workers {
		if p.in.Workers[i].mayReceive() {
			live = append(live, int32(i))
			total += int(p.load[i])
		}
	}
	p.share(live, total)
	for _, i := range live {
		if p.fair[i] > 0 {
			p.out.Imbalance = max(p.out.Imbalance, p.relative(i))
		}
	}
	if len(live) < 2 {
		return
	}
	pace := max(p.in.Pace, 1)
	b := &balance{planner: p, budget: inFlight(len(p.in.Owners))*int(pace) - p.flying, perReceiver: perReceiver * pace}
	b.give = make([]int32, len(p.in.Workers))
	b.need = make([]int32, len(p.in.Workers))
	b.giveBack()
	b.weigh()
	b.match()
}

// balance is the working set of evening out.
type balance struct {
	*planner
	budget int
	// perReceiver is how many may fly towards one worker.
	perReceiver int32
	// give is how many a worker should lose, need how many it should get.
	give, need []int32
	moved      []uint32 // partitions that giveBack has put under way, sorted
}

// weigh decides who gives and who gets how many. Nothing happens within 10 %
// of the fair share. A worker below it is filled to its share from the
// heaviest, so that the first to lose are those above, and once that has begun
// it goes on to the share, not just into the 10 %. A worker that holds nothing
// while another holds several is below its share whatever the sizes.
func (b *balance) weigh() {
	wanted := 0
	for _, i := range b.who {
		w := &b.in.Workers[i]
		fill := b.fill(i)
		started := slices.Contains(b.in.Filling, w.Session)
		if b.load[i] >= fill || !started && float64(b.load[i]) >= underload*b.fair[i]-epsilon {
			continue
		}
		switch until := w.unsettled(b.in.Now); {
		case w.doubted(b.in.Now):
			b.wakeAt(w.GossipUntil)
		case until > 0:
			b.wakeAt(until)
		default:
			b.need[i] = fill - b.load[i]
			wanted += int(b.need[i])
			b.out.Filling = append(b.out.Filling, w.Session)
		}
	}
	after := slices.Clone(b.load)
	b.level(wanted, after)
	b.shed(after)
}

// level takes n partitions from the heaviest, one at a time, as long as they
// are above their share and have one that may go: a newcomer does not wait for
// those of a worker that have all moved lately while another could give.
func (b *balance) level(n int, after []int32) {
	saved := b.load
	b.load = after
	defer func() { b.load = saved }()
	if n > 0 {
		spare := b.spare(after)
		gives := func(i int32) bool { return after[i] > b.fill(i) && spare[i] > b.give[i] }
		h := b.loads(-1, b.who, func(i int32) bool { return b.mayGive(i) && gives(i) })
		for ; n > 0 && h.first() != nobody; n-- {
			d := h.first()
			b.give[d]++
			after[d]--
			h.again(gives(d))
		}
	}
	for _, i := range b.who {
		after[i] += b.need[i]
	}
}

// spare counts the partitions that may go, of each worker above its share.
func (b *balance) spare(after []int32) []int32 {
	spare := make([]int32, len(b.in.Workers))
	above := make([]bool, len(b.in.Workers))
	for _, i := range b.who {
		above[i] = after[i] > b.fill(i)
	}
	for part, o := range b.resting() {
		if above[o] && b.movable(part) {
			spare[o]++
		}
	}
	return spare
}

// resting walks over the partitions that have an owner and are not under way.
func (b *balance) resting() iter.Seq2[uint32, int32] {
	return func(yield func(uint32, int32) bool) {
		move := 0
		for q, o := range b.in.Owners {
			part := uint32(q)
			for move < len(b.in.Moves) && b.in.Moves[move].Partition < part {
				move++
			}
			if o < 0 || move < len(b.in.Moves) && b.in.Moves[move].Partition == part {
				continue
			}
			if !yield(part, o) {
				return
			}
		}
	}
}

// shed takes from workers that are more than 10 % above their share although
// nobody is short, and gives to the lightest.
func (b *balance) shed(after []int32) {
	saved := b.load
	b.load = after
	defer func() { b.load = saved }()
	var h *loads
	for _, d := range b.who {
		if !b.mayGive(d) || after[d] <= b.most(d) {
			continue
		}
		down := max(b.top(d), int32(math.Floor(b.fair[d]*settled+epsilon)))
		for after[d] > down {
			if h == nil {
				h = b.loads(1, b.who, func(i int32) bool { return after[i] < b.top(i) && b.mayGet(i) })
			}
			r := h.first()
			if r == nobody {
				return
			}
			b.give[d]++
			after[d]--
			b.need[r]++
			after[r]++
			h.again(after[r] < b.top(r))
		}
	}
}

// mayGive: a worker that gossip doubts is left in peace, for as long.
func (b *balance) mayGive(i int32) bool {
	w := &b.in.Workers[i]
	if !w.doubted(b.in.Now) {
		return true
	}
	b.wakeAt(w.GossipUntil)
	return false
}

// mayGet: nor is it given anything, and one that comes and goes has to stay for
// a while first.
func (b *balance) mayGet(i int32) bool {
	until := b.in.Workers[i].unsettled(b.in.Now)
	b.wakeAt(until)
	return until == 0 && b.mayGive(i)
}

// match picks the partitions: first those that the ring wishes on a worker
// that needs some, then any. It starts only what may be under way at once.
func (b *balance) match() {
	wanted := 0
	for _, n := range b.need {
		wanted += int(n)
	}
	b.out.Wanted += wanted
	if wanted == 0 || !b.isQuiet() {
		return
	}
	free := 0 // how many more may fly towards the receivers
	for _, i := range b.who {
		b.inbound[i] = min(max(b.perReceiver-b.inbound[i], 0), b.need[i])
		free += int(b.inbound[i])
	}
	b.budget = min(b.budget, free)
	for _, wished := range []bool{true, false} {
		b.pick(wished)
	}
}

// isQuiet: balance waits until the set of workers has not changed for a
// while, but not for ever.
func (b *balance) isQuiet() bool {
	at := b.in.quietAt()
	b.wakeAt(at)
	return b.in.Now >= at
}

// pick walks over the partitions of those that give. inbound is by now what
// may still be started towards each receiver.
func (b *balance) pick(wished bool) {
	next := 0
	for part, o := range b.resting() {
		if b.budget <= 0 {
			return
		}
		if b.give[o] <= 0 {
			continue
		}
		to := b.wish(part)
		if !wished {
			to, next = b.nextReceiver(next)
		}
		if to == nobody || to == o || b.inbound[to] <= 0 || !b.movable(part) {
			continue
		}
		b.start(part, o, to, b.evenCause(to))
		next++
	}
}

func (b *balance) nextReceiver(from int) (worker int32, at int) {
	for k := range b.who {
		at := (from + k) % len(b.who)
		if b.inbound[b.who[at]] > 0 {
			return b.who[at], at
		}
	}
	return nobody, from
}

// movable: not moved lately, not under way already, not under suspicion.
func (b *balance) movable(part uint32) bool {
	if _, ok := slices.BinarySearch(b.moved, part); ok {
		return false
	}
	why, until := b.in.staysFor(part, b.in.Now)
	b.wakeAt(until)
	return why == StayNone
}

func (b *balance) suspected(part uint32) bool {
	_, ok := b.suspect(part)
	return ok
}

func (b *balance) suspect(part uint32) (at int, ok bool) {
	return b.in.suspect(part)
}

// start writes the drain and books it.
func (b *balance) start(part uint32, from, to int32, cause state.Cause) {
	b.out.Drains = append(b.out.Drains, Drain{
		Partition: part, Cause: cause,
		Token: b.in.Tokens[part], Target: b.in.Workers[to].Session,
	})
	at, _ := slices.BinarySearch(b.moved, part)
	b.moved = slices.Insert(b.moved, at, part)
	b.budget--
	b.load[from]--
	b.load[to]++
	if cause != state.CauseRestart {
		b.give[from]--
		b.need[to]--
		b.inbound[to]--
		b.out.Wanted--
	}
}

// evenCause: a session that has opened lately is still joining.
func (b *balance) evenCause(to int32) state.Cause {
	if b.in.Now-b.in.Workers[to].Opened < 5*coolDown {
		return state.CauseJoin
	}
	return state.CauseBalance
}
