package demo

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// Timeline tells the story as it happens: coloured on a terminal, plain lines
// elsewhere. It may be used from any goroutine.
type Timeline struct {
	mu       sync.Mutex
	w        io.Writer
	terminal bool
	start    time.Duration
}

// NewTimeline starts the clock of the story.
func NewTimeline(w io.Writer, terminal bool) *Timeline {
	return &Timeline{w: w, terminal: terminal, start: Now()}
}

const (
	bold  = "1"
	dim   = "2"
	red   = "31"
	green = "32"
)

// Chapter starts a mode.
func (t *Timeline) Chapter(format string, args ...any) { t.line(bold, "── ", format, args...) }

// Step says what the driver does now.
func (t *Timeline) Step(format string, args ...any) { t.line(bold, "▸ ", format, args...) }

// Note says what came of it.
func (t *Timeline) Note(format string, args ...any) { t.line("", "  ", format, args...) }

// Good and Bad are the verdict's lines.
func (t *Timeline) Good(format string, args ...any) { t.line(green, "✓ ", format, args...) }

// Bad is a broken promise.
func (t *Timeline) Bad(format string, args ...any) { t.line(red, "✗ ", format, args...) }

// Text is told as it is: what people may want to copy.
func (t *Timeline) Text(text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, _ = fmt.Fprint(t.w, text) // a story nobody can hear any more
}

func (t *Timeline) line(colour, mark, format string, args ...any) {
	at := fmt.Sprintf("%6.2fs ", (Now() - t.start).Seconds())
	text := mark + fmt.Sprintf(format, args...)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.terminal {
		at = "\x1b[" + dim + "m" + at + "\x1b[0m"
		if colour != "" {
			text = "\x1b[" + colour + "m" + text + "\x1b[0m"
		}
	}
	_, _ = fmt.Fprintln(t.w, at+text) // a story nobody can hear any more
}

// Move is one partition that found a new owner.
type Move struct {
	Partition uint32
	From, To  Holding
	Took      time.Duration // since the step began
}

// shownMoves is how many moves of a step are told one by one.
const shownMoves = 3

// Moves tells of moves: the first few in full, the rest as a number.
func (t *Timeline) Moves(moves []Move) {
	for i, m := range moves {
		if i == shownMoves {
			t.Note("… and %d more, %s", len(moves)-i, receivers(moves[i:]))
			break
		}
		t.Note("orders/%d: %s → %s, token %d → %d, %s", m.Partition, orNobody(m.From.Worker), m.To.Worker, m.From.Token, m.To.Token, rounded(m.Took))
	}
}

// receivers says who got how many, in the order in which they first appear.
func receivers(moves []Move) string {
	count := map[string]int{}
	var order []string
	for _, m := range moves {
		if count[m.To.Worker] == 0 {
			order = append(order, m.To.Worker)
		}
		count[m.To.Worker]++
	}
	parts := make([]string, len(order))
	for i, w := range order {
		parts[i] = fmt.Sprintf("%d to %s", count[w], w)
	}
	return strings.Join(parts, ", ")
}

func orNobody(worker string) string {
	if worker == "" {
		return "nobody"
	}
	return worker
}

// rounded is a duration as a person would say it.
func rounded(d time.Duration) string {
	switch {
	case d >= time.Second:
		return d.Round(10 * time.Millisecond).String()
	case d >= 10*time.Millisecond:
		return d.Round(time.Millisecond).String()
	}
	return d.Round(100 * time.Microsecond).String()
}

// tell ends a mode's story with its figures and the verdict.
func (t *Timeline) tell(r ModeResult) {
	t.Note("crash → next handler        p50 %.0f ms, max %.0f ms", r.TakeoverCrash.P50, r.TakeoverCrash.Max)
	t.Note("stop → next handler         p50 %.0f ms, max %.0f ms", r.TakeoverPause.P50, r.TakeoverPause.Max)
	t.Note("drain → next handler        p50 %.1f ms, p99 %.1f ms", r.Handoff.P50, r.Handoff.P99)
	t.Note("leader killed → next ack    %.0f ms, %d moves", r.LeaderFailover.Max, r.LeaderChangeMoves)
	t.Note("rolling restart: still for  p50 %.0f ms, max %.0f ms; %d grants to third parties", r.Unowned.P50, r.Unowned.Max, r.RollingRestartThirdPartyGrant)
	t.Note("%d orders, %d missing, %d twice, %d under an older token; %d stale writes rejected",
		r.OrdersWritten, r.OrdersMissing, r.OrdersDuplicated, r.TokenRegressions, r.StaleWritesRejected)
	t.Note("%d contexts checked, %d pairs live at once, %d more while paused", r.IntervalsChecked, r.Overlaps, r.OverlapsWhilePaused)
	if r.ok() {
		t.Good("%s: the verdict holds", r.Mode)
		return
	}
	for _, p := range r.Problems {
		t.Bad("%s: %s", r.Mode, p)
	}
}
