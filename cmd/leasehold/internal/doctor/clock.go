package doctor

import (
	"fmt"
	"strings"
	"time"

	pb "github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
)

const (
	// maxRate is how far clock rates may differ: the promise of strict takeover
	// rests on it.
	maxRate = 0.01
	// maxWall is how far wall clocks may be apart before it confuses people.
	maxWall = time.Second
)

// rate is how fast a server's boot clock runs by ours: it lies between low and
// high, the answers having been made at some time between question and arrival.
type rate struct{ low, mid, high float64 }

// rateOf compares two readings of a server's clock with ours.
func rateOf(s *Server) (r rate, ok bool) {
	a, b := s.First.Health, s.Second.Health
	if a == nil || b == nil || a.GetBoot() != b.GetBoot() || a.GetBootClockNs() == 0 {
		return rate{}, false // another process may have another clock
	}
	passed := float64(b.GetBootClockNs() - a.GetBootClockNs())
	first, second := s.First.Clock, s.Second.Clock
	shortest, longest := second.Sent-first.Received, second.Received-first.Sent
	if passed <= 0 || shortest <= 0 {
		return rate{}, false
	}
	mid := (float64(shortest) + float64(longest)) / 2
	return rate{passed / float64(longest), passed / mid, passed / float64(shortest)}, true
}

// ClockSpread is the greatest difference between the rates of two clocks.
type ClockSpread struct {
	Fast, Slow string // servers; empty: fewer than two were measured
	// Least is certain, Likely is the best estimate, Error how far off it may
	// be. All are shares: 0.01 is 1 %.
	Least, Likely, Error float64
}

// ClockRates compares the boot clocks of the servers pair by pair.
func ClockRates(f *Facts) (worst ClockSpread) {
	rates := map[string]rate{}
	for _, s := range f.up() {
		if r, ok := rateOf(s); ok {
			rates[s.name()] = r
		}
	}
	for _, fast := range f.up() {
		for _, slow := range f.up() {
			a, okA := rates[fast.name()]
			b, okB := rates[slow.name()]
			if !okA || !okB || fast == slow || a.mid < b.mid {
				continue
			}
			likely := a.mid/b.mid - 1
			c := ClockSpread{Fast: fast.name(), Slow: slow.name(), Least: max(a.low/b.high-1, 0), Likely: likely, Error: a.high/b.low - 1 - likely}
			if worst.Fast == "" || c.Least > worst.Least || c.Least == worst.Least && c.Likely > worst.Likely {
				worst = c
			}
		}
	}
	return worst
}

func percent(share float64) string { return fmt.Sprintf("%.2f %%", 100*share) }

// clocks finds clocks that run at different rates, and wall clocks that are
// apart.
func (e *exam) clocks() {
	c := ClockRates(e.Facts)
	evidence := fmt.Sprintf("%s runs %s faster than %s, measured over %v, give or take %s", c.Fast, percent(c.Likely), c.Slow, e.Apart.Round(time.Millisecond), percent(c.Error))
	switch {
	case c.Fast == "":
	case c.Least > maxRate:
		e.find(&pb.Finding{
			Severity: Critical, Code: "clock_rate", Subject: "server " + c.Fast,
			What: "the clocks of two servers run at different rates", Evidence: evidence,
			Why:  "strict takeover holds as long as clock rates differ by less than 1 %",
			Next: "look at the clock source of both machines: cat /sys/devices/system/clocksource/clocksource0/current_clocksource; hand leadership to a sound one: leasehold raft transfer",
		})
	case c.Likely > maxRate:
		e.find(&pb.Finding{
			Severity: Notice, Code: "clock_rate_unsure", Subject: "server " + c.Fast,
			What: "the clocks of two servers may run at different rates, this was too short to tell", Evidence: evidence,
			Why:  "strict takeover holds as long as clock rates differ by less than 1 %",
			Next: "leasehold doctor --duration 30s",
		})
	}
	e.wallClocks()
}

// WallApart is by how much the wall clocks of two servers differ for certain.
func WallApart(f *Facts) (apart time.Duration, ahead, behind string) {
	type offset struct{ low, high time.Duration } // of the server's clock to ours
	offsets := map[string]offset{}
	for _, s := range f.up() {
		h, c := s.health(), s.Second.Clock
		if h.GetWallClock() == nil {
			continue
		}
		d := h.GetWallClock().AsTime().Sub(c.SentAt)
		offsets[s.name()] = offset{d - (c.Received - c.Sent), d}
	}
	for _, a := range f.up() {
		for _, b := range f.up() {
			x, okX := offsets[a.name()]
			y, okY := offsets[b.name()]
			if d := x.low - y.high; okX && okY && a != b && d > apart {
				apart, ahead, behind = d, a.name(), b.name()
			}
		}
	}
	return apart, ahead, behind
}

func (e *exam) wallClocks() {
	apart, ahead, behind := WallApart(e.Facts)
	if apart <= maxWall {
		return
	}
	e.find(&pb.Finding{
		Severity: Warning, Code: "wall_clock", Subject: "server " + ahead,
		What:     "the wall clocks of two servers are apart",
		Evidence: fmt.Sprintf("%s is ahead of %s by %v or more", ahead, behind, apart.Round(time.Millisecond)),
		Why:      "leases do not depend on wall clocks; the times of events and logs, and the tokens of a new cluster, do",
		Next:     "check the time service of both machines: " + strings.Join([]string{"timedatectl", "chronyc tracking"}, " or "),
	})
}
