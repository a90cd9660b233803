package controller

import "math"

// shares is the fair share of each of a set of workers, and what follows.
type shares struct {
	who  []int32   // the workers of the set
	fair []float64 // by worker index; 0 for those outside
}

// epsilon keeps rounding from turning 4 into 3.9999.
const epsilon = 1e-9

// share divides total among the workers of who by weight: capacity, or 1
// where there is none. Nobody's share is above its limit, and nobody who has
// room gets none as long as there is a partition for each.
func (p *planner) share(who []int32, total int) {
	if p.fair == nil {
		p.fair = make([]float64, len(p.in.Workers))
	}
	clear(p.fair)
	p.who = who
	if len(who) == 0 {
		return
	}
	even, room := true, 0.0
	for _, i := range who {
		even = even && p.in.Workers[i].Capacity == 0
		room += float64(max(p.limit[i], 0))
	}
	if even {
		for _, i := range who {
			p.fair[i] = float64(total) / float64(len(who))
		}
		return
	}
	if room <= float64(total) {
		for _, i := range who {
			p.fair[i] = float64(max(p.limit[i], 0))
		}
		return
	}
	least := 0.0
	if total >= len(who) {
		least = 1
	}
	// The sum of clamp(level × weight) rises with the level: find where it
	// meets the total.
	low, high := 0.0, float64(total)
	for range 64 {
		level := (low + high) / 2
		sum := 0.0
		for _, i := range who {
			sum += p.clamp(i, level, least)
		}
		if sum < float64(total) {
			low = level
		} else {
			high = level
		}
	}
	for _, i := range who {
		p.fair[i] = p.clamp(i, high, least)
	}
}

func (p *planner) clamp(i int32, level, least float64) float64 {
	room := float64(max(p.limit[i], 0))
	weight := float64(max(p.in.Workers[i].Capacity, 1))
	return min(max(level*weight, least), room)
}

// noteShares tells how the workers stand: shares are of all partitions, also of
// those that nobody can be given now.
func (p *planner) noteShares() {
	who := make([]int32, 0, len(p.in.Workers))
	for i := range p.in.Workers {
		if p.in.Workers[i].mayReceive() {
			who = append(who, int32(i))
		}
	}
	p.share(who, len(p.in.Owners))
	p.out.Shares = make([]Share, len(p.in.Workers))
	for i := range p.out.Shares {
		p.out.Shares[i] = Share{Load: p.load[i], Fair: p.fair[i], Limit: p.limit[i]}
	}
	for _, i := range who {
		p.out.Shares[i].Most = p.most(i)
	}
}

// fill is what a worker is filled up to: its share, rounded down.
func (p *planner) fill(i int32) int32 { return int32(math.Floor(p.fair[i] + epsilon)) }

// top is the share rounded up: what a worker that sheds may still take.
func (p *planner) top(i int32) int32 {
	return min(int32(math.Ceil(p.fair[i]-epsilon)), p.limit[i])
}

// most is what orphans may bring a worker to. It is 1.10 of the share rounded
// down, so that the bound on the greatest load over the mean holds for whole
// partitions too, but never less than the share rounded up.
func (p *planner) most(i int32) int32 {
	return min(max(p.top(i), int32(math.Floor(p.fair[i]*overload+epsilon))), p.limit[i])
}

// relative is a worker's load in units of its share.
func (p *planner) relative(i int32) float64 {
	if p.fair[i] <= 0 {
		return math.Inf(1)
	}
	return float64(p.load[i]) / p.fair[i]
}

// heap orders workers by relative load: the lightest first, or, with sign -1,
// the heaviest. Ties go by index.
type loads struct {
	p    *planner
	sign float64
	heap []int32
	key  []float64 // by position in heap
}

func (p *planner) loads(sign float64, who []int32, want func(int32) bool) *loads {
	h := &loads{p: p, sign: sign, heap: make([]int32, 0, len(who)), key: make([]float64, 0, len(who))}
	for _, i := range who {
		if want(i) {
			h.heap = append(h.heap, i)
			h.key = append(h.key, sign*p.relative(i))
		}
	}
	for i := len(h.heap)/2 - 1; i >= 0; i-- {
		h.down(i)
	}
	return h
}

func (h *loads) less(a, b int) bool {
	return h.key[a] < h.key[b] || h.key[a] == h.key[b] && h.heap[a] < h.heap[b]
}

func (h *loads) down(i int) {
	for {
		c := 2*i + 1
		if c >= len(h.heap) {
			return
		}
		if c+1 < len(h.heap) && h.less(c+1, c) {
			c++
		}
		if !h.less(c, i) {
			return
		}
		h.heap[i], h.heap[c] = h.heap[c], h.heap[i]
		h.key[i], h.key[c] = h.key[c], h.key[i]
		i = c
	}
}

// first is the worker at the top, or nobody.
func (h *loads) first() int32 {
	if len(h.heap) == 0 {
		return nobody
	}
	return h.heap[0]
}

// again puts the top where it belongs after its load has changed, or takes
// it out.
func (h *loads) again(keep bool) {
	if keep {
		h.key[0] = h.sign * h.p.relative(h.heap[0])
	} else {
		n := len(h.heap) - 1
		h.heap[0], h.key[0] = h.heap[n], h.key[n]
		h.heap, h.key = h.heap[:n], h.key[:n]
	}
	h.down(0)
}
