package demo

import (
	"fmt"
	"time"

	"github.com/leasehold-dev/leasehold/cmd/leasehold/internal/latency"
)

// Mode is a way of takeover, as in the keyspace's settings.
type Mode string

// Both modes.
const (
	Fenced Mode = "fenced"
	Strict Mode = "strict"
)

// Result is the last line of `demo -o json`.
type Result struct {
	OK    bool         `json:"ok"`
	Modes []ModeResult `json:"modes"`
}

// ModeResult is what one mode's storm left behind.
type ModeResult struct {
	Mode                          Mode            `json:"mode"`
	TTLMillis                     int64           `json:"ttl_ms"`
	Partitions                    uint32          `json:"partitions"`
	OrdersWritten                 int             `json:"orders_written"`
	OrdersMissing                 int             `json:"orders_missing"`
	OrdersDuplicated              int             `json:"orders_duplicated"`
	TokenRegressions              int             `json:"token_regressions"`
	StaleWritesRejected           int             `json:"stale_writes_rejected"`
	IntervalsChecked              int             `json:"intervals_checked"`
	Overlaps                      int             `json:"overlaps"`
	OverlapsWhilePaused           int             `json:"overlaps_while_paused"`
	TakeoverCrash                 latency.Summary `json:"takeover_crash_ms"`
	TakeoverPause                 latency.Summary `json:"takeover_pause_ms"`
	Handoff                       latency.Summary `json:"handoff_ms"`
	LeaderFailover                latency.Summary `json:"leader_failover_ms"`
	LeaderChangeMoves             int             `json:"leader_change_moves"`
	RollingRestartThirdPartyGrant int             `json:"rolling_restart_third_party_grants"`
	Moves                         map[string]int  `json:"moves"`

	// Problems are what breaks the verdict, in words; empty when it holds.
	Problems []string `json:"-"`
	// Unowned is how long partitions stood still in the rolling restart.
	Unowned latency.Summary `json:"-"`
}

// judge puts the figures together and says what is wrong with them. It is
// pure: the same ledger and evidence give the same verdict.
func judge(mode Mode, ttl time.Duration, src *Source, audit Audit, overlaps Overlaps, m Measures) ModeResult {
	r := ModeResult{
		Mode: mode, TTLMillis: ttl.Milliseconds(), Partitions: src.Partitions,
		OrdersWritten: audit.Written, OrdersMissing: audit.Missing, OrdersDuplicated: audit.Duplicated,
		TokenRegressions: audit.TokenRegressions, StaleWritesRejected: m.StaleRejected,
		IntervalsChecked: overlaps.Checked, Overlaps: overlaps.Live, OverlapsWhilePaused: overlaps.Paused,
		TakeoverCrash: latency.Summarise(m.Crash), TakeoverPause: latency.Summarise(m.Pause),
		Handoff: latency.Summarise(m.Handoff), LeaderFailover: latency.Summarise(m.Failover),
		LeaderChangeMoves: m.LeaderChangeMoves, RollingRestartThirdPartyGrant: m.ThirdPartyGrants,
		Moves: m.Moves, Unowned: latency.Summarise(m.Unowned),
	}
	bad := func(broken bool, format string, args ...any) {
		if broken {
			r.Problems = append(r.Problems, fmt.Sprintf(format, args...))
		}
	}
	bad(audit.Written == 0, "no order was written")
	bad(audit.Missing > 0, "%d orders are missing", audit.Missing)
	bad(audit.Duplicated > 0, "%d orders were written twice", audit.Duplicated)
	bad(audit.OutOfSequence > 0, "%d orders are out of sequence", audit.OutOfSequence)
	bad(audit.TokenRegressions > 0, "%d writes were accepted below an accepted token", audit.TokenRegressions)
	bad(audit.Foreign > 0, "%d rows are no orders that were sent", audit.Foreign)
	bad(m.StaleRejected == 0, "no stale write was rejected")
	bad(overlaps.Checked < int(src.Partitions), "only %d contexts are in evidence, of %d partitions", overlaps.Checked, src.Partitions)
	bad(mode == Strict && overlaps.Live > 0, "%d pairs of contexts were live at once", overlaps.Live)
	bad(m.LeaderChangeMoves > 0, "%d partitions moved when the leader died", m.LeaderChangeMoves)
	bad(len(m.Crash) == 0, "no takeover after a crash was seen")
	bad(len(m.Pause) == 0, "no takeover of a stopped worker was seen")
	bad(len(m.Failover) == 0, "no failover of the leader was seen")
	r.Problems = append(r.Problems, m.Missing...)
	if mode == Strict {
		for _, pair := range overlaps.Examples {
			r.Problems = append(r.Problems, fmt.Sprintf("orders/%d: %s (token %d) and %s (token %d) were live at once",
				pair[0].Partition, pair[0].Process, pair[0].Token, pair[1].Process, pair[1].Token))
		}
	}
	r.Problems = append(r.Problems, audit.Examples...)
	return r
}

// ok says whether the verdict holds.
func (r ModeResult) ok() bool { return len(r.Problems) == 0 }
