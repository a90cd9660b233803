package state

import (
	"fmt"
	"time"
)

// FirstToken returns the token at which a cluster formed at this wall-clock
// time starts: centiseconds since 2025-01-01 UTC, shifted by 13 bits. A later
// cluster so starts above whatever an earlier one can have reached.
func FirstToken(now time.Time) Token {
	cs := (now.UnixMilli() - time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC).UnixMilli()) / 10
	if cs <= 0 {
		return 1
	}
	return min(Token(cs), MaxToken>>13) << 13
}

// nextToken draws the next token of the one cluster-wide counter, or says
// that there is none left: it never wraps and never repeats.
func (s *State) nextToken() (Token, error) {
	if s.lastToken >= MaxToken {
		return 0, &Refusal{Reason: ReasonTokensSpent, What: "token", Limit: fmt.Sprint(uint64(MaxToken)), Token: s.lastToken}
	}
	s.lastToken++
	return s.lastToken, nil
}

func (s *State) raiseToken(c *RaiseToken) error {
	if c.Token > MaxToken {
		return refuse(ReasonInvalid, "token", "token", fmt.Sprint(uint64(c.Token)), fmt.Sprintf("at most %d", uint64(MaxToken)))
	}
	if c.Token > s.lastToken {
		s.lastToken = c.Token
		e := s.emit(KindTokenRaise, CauseNone)
		e.Token = c.Token
	}
	return nil
}
