package raftstore

import "time"

// ClockAhead is how far the state's clock would move if an entry were written
// now, on the leader: what View shows as Now is this much behind. It is 0, or of no
// meaning, on other servers. It may be called within View.
func (s *Store) ClockAhead() time.Duration { return s.clock.ahead() }
