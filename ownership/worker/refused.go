package worker

import (
	"log/slog"
	"time"
)

// refusedSayEvery is the time between two log lines about refused tokens. An
// owner that has been fenced off and does not know it may write thousands of
// times a second.
const refusedSayEvery = 10 * time.Second

// refused is what has been said of the tokens that guards refused. The guards
// only count; the loop says it, so that no write waits for a log.
type refused struct {
	stale, otherOwner uint64
	at                time.Duration // of the last line, on the boot clock; 0: none yet
}

// sayRefused logs how many tokens have been refused since the last line, if that
// is long enough ago.
func (c *core) sayRefused(now reading) {
	v := &c.refusals
	stale, other := c.fencing.Stale()-v.stale, c.fencing.OtherOwner()-v.otherOwner
	if stale+other == 0 || v.at > 0 && now.boot-v.at < refusedSayEvery {
		return
	}
	c.logRefused(stale, other)
	v.at = max(now.boot, 1)
}

func (c *core) logRefused(stale, other uint64) {
	level := slog.LevelWarn
	if other > 0 {
		level = slog.LevelError // a token is issued once: somebody has made this one up
	}
	c.log(level, "guards refused tokens: what they came with was not done", "stale", stale, "other_owner", other)
	c.refusals.stale += stale
	c.refusals.otherOwner += other
}

// lastRefused says at the end what has not been said.
func (c *core) lastRefused() {
	if stale, other := c.fencing.Stale()-c.refusals.stale, c.fencing.OtherOwner()-c.refusals.otherOwner; stale+other > 0 {
		c.logRefused(stale, other)
	}
}
