package state

import "fmt"

// MaxOwnerLen bounds Owner: a role or a word, a slash and a name.
const MaxOwnerLen = MaxTextLen

// Owned is the Owner to put into a command: the given one from the level on at
// which sessions have owners, and none below.
func (s *State) Owned(owner string) string {
	if s.Feature() < FeatureAccess {
		return ""
	}
	return owner
}

// checkOwner refuses an owner of whom the log may not tell yet, or whose name is
// out of limits.
func (s *State) checkOwner(c Command, what, owner string) error {
	if owner == "" {
		return nil
	}
	if err := s.Permits(c); err != nil {
		return err
	}
	return validateText(what, "owner", owner, MaxOwnerLen)
}

// usurps refuses to open a session of a worker id whose present one somebody
// else has opened and still uses. Their name is not told.
func (s *State) usurps(w *Worker, c *OpenSession) error {
	old, ok := s.sessions[w.Session]
	if !ok || old.barred() {
		return nil
	}
	return old.foreign(c.Owner, w.ID)
}

// foreign refuses owner where the session has another one.
func (x *Session) foreign(owner, worker string) error {
	if x.Owner == "" || x.Owner == owner {
		return nil
	}
	return refuse(ReasonDenied, "worker", "worker_id", worker, "an id that nobody else uses")
}

// barOwned bars every session, and every lease of keys, that owner has opened
// and returns how many there were.
func (s *State) barOwned(owner string, cause Cause) (barred int) {
	for _, x := range s.sessionOrder {
		if x.Owner != owner || x.barred() {
			continue
		}
		barred++
		if x.isLease() {
			x.State = SessionEvicted // no event tells of it, nor does it hold anything but keys
			continue
		}
		s.bar(x, SessionEvicted, cause)
	}
	return barred
}

// checkSessionOwner: owners are there from their level on alone, and only
// somebody's lease of keys can be barred.
func (s *State) checkSessionOwner(x *Session) error {
	if x.Owner == "" {
		if x.isLease() && x.barred() {
			return fmt.Errorf("is %s and nobody's", x.State)
		}
		return nil
	}
	if s.Feature() < FeatureAccess {
		return fmt.Errorf("has an owner at feature level %d", s.Feature())
	}
	return validateText("session", "owner", x.Owner, MaxOwnerLen)
}
