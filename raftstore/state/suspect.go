package state

import (
	"iter"
	"slices"
)

// Suspect is a partition with failures against it.
type Suspect struct {
	Partition   uint32
	Workers     []string // distinct workers that failed, at most 3 kept
	Failures    int
	RetryAt     Clock // not granted before
	Quarantined bool
	LastError   string
}

// A handler's failure is certain evidence against its partition. The death of
// a session is not: it had many partitions, and any or none may have done it.
// So a death counts as one failure shared by all the leases that were on
// probation. An innocent partition of a worker that was killed stays far
// below one failure; a poisonous one is spread ever thinner with each death
// until it is alone, and is then found.
const wholeBlame uint32 = 1 << 16

// quarantineBlame is what it takes to be quarantined, beside the number of
// workers. A poisonous partition shares the first death with all that were
// granted together, and is alone with its new worker at the others. With less,
// three workers that were killed one after the other (or cut off, or upgraded)
// would condemn innocent partitions that had just moved.
const quarantineBlame = (QuarantineWorkers - 1) * wholeBlame

// maxBlamed is how many leases a death is shared by at most: among more it
// says nothing worth remembering about any of them.
const maxBlamed = 1 << 10

// maxSuspects bounds the records of one keyspace.
const maxSuspects = 1 << 16

type suspect struct {
	workers     []string
	blame       uint32 // failures, in parts of wholeBlame
	retryAt     Clock
	quarantined bool
	lastError   string
}

func (t *suspect) failures() int { return int(t.blame / wholeBlame) }

// view says what is known; a partition with less than one failure against it
// is not a suspect to anybody outside.
func (t *suspect) view(p uint32) (Suspect, bool) {
	return Suspect{
		Partition: p, Workers: t.workers, Failures: t.failures(),
		RetryAt: t.retryAt, Quarantined: t.quarantined, LastError: t.lastError,
	}, t.blame >= wholeBlame
}

// Suspects yields partitions with failures, by number.
func (k *Keyspace) Suspects() iter.Seq[Suspect] {
	return func(yield func(Suspect) bool) {
		for _, p := range sortedKeys(k.suspects) {
			if v, ok := k.suspects[p].view(p); ok && !yield(v) {
				return
			}
		}
	}
}

// Suspect returns the failures of one partition.
func (k *Keyspace) Suspect(p uint32) (Suspect, bool) {
	t, ok := k.suspects[p]
	if !ok {
		return Suspect{}, false
	}
	return t.view(p)
}

func (k *Keyspace) quarantined(p uint32) bool {
	if len(k.suspects) == 0 {
		return false
	}
	t, ok := k.suspects[p]
	return ok && t.quarantined
}

// suspect counts a failure against an unowned partition. A handler's failure
// is retried with growing delay. A death delays nothing at first, so that
// takeovers keep their bounds, but from the third whole one on.
func (s *State) suspect(k *Keyspace, p uint32, worker string, blame uint32, died bool, text string) {
	if k.Deleting {
		return
	}
	t, ok := k.suspects[p]
	if !ok {
		if len(k.suspects) >= maxSuspects {
			return
		}
		t = &suspect{}
		k.suspects[p] = t
	}
	if len(t.workers) < QuarantineWorkers && !slices.Contains(t.workers, worker) {
		t.workers = append(slices.Clip(t.workers), worker)
	}
	t.blame = min(t.blame+blame, 1<<30)
	if text != "" {
		t.lastError = text
	}
	switch {
	case t.quarantined:
		t.retryAt = s.clock + MaxRetry
	case len(t.workers) == QuarantineWorkers && t.blame >= quarantineBlame:
		t.quarantined, t.retryAt = true, s.clock+MaxRetry
		k.Quarantined++
		cause := CauseFailed
		if died {
			cause = CauseCrash
		}
		e := s.emit(KindQuarantine, cause)
		e.Keyspace, e.Partition, e.Token, e.Worker = k.ID, p, k.token[p], worker
	case !died:
		t.retryAt = s.clock + backoff(t.failures())
	case t.failures() >= QuarantineWorkers:
		t.retryAt = s.clock + backoff(t.failures()-QuarantineWorkers+1)
	}
}

// backoff is the delay after the n-th failure.
func backoff(n int) Clock {
	if n < 1 {
		n = 1
	}
	if n > 16 {
		return MaxRetry
	}
	return min(MinRetry<<(n-1), MaxRetry)
}

// blame is each young lease's share in the death of x, 0 where it did not
// die. alive is when it was last known to live.
func (s *State) blame(x *Session, alive uint32, died bool, of func(*Keyspace) bool) uint32 {
	if !died {
		return 0
	}
	n := uint32(0)
	for i, id := range x.Keyspaces {
		k := s.keyspaces[id]
		if !of(k) {
			continue
		}
		for p := x.held[i].head; p != none; p = k.next[p] {
			if youngAt(k.since[p], alive) {
				n++
			}
		}
	}
	return shareOf(n)
}

// blameItems does the same for the leases that one command revokes.
func (s *State) blameItems(k *Keyspace, c *Revoke) uint32 {
	if c.Cause != CauseCrash {
		return 0
	}
	n := uint32(0)
	for _, it := range c.Items {
		if it.Partition < k.Partitions && k.holder[it.Partition] != 0 && youngAt(k.since[it.Partition], s.seconds()) {
			n++
		}
	}
	return shareOf(n)
}

func shareOf(n uint32) uint32 {
	if n == 0 || n > maxBlamed {
		return 0
	}
	return wholeBlame / n
}

// absolve clears the partitions that have been owned past their probation
// since they failed; a quarantine that a slow retry has ended is told.
func (s *State) absolve(k *Keyspace) {
	for _, p := range sortedKeys(k.suspects) {
		if k.holder[p] == 0 || youngAt(k.since[p], s.seconds()) {
			continue
		}
		if k.suspects[p].quarantined {
			e := s.emitLease(KindRetry, k, p, k.owner(p), CauseRetry)
			e.Session = 0
		}
		delete(k.suspects, p)
	}
}

// retry forgets a partition's failures on an operator's word.
func (s *State) retry(c *Retry) error {
	k, err := s.numbered(c.Keyspace)
	if err != nil {
		return err
	}
	if err := k.hasPartition(c.Partition); err != nil {
		return err
	}
	t, ok := k.suspects[c.Partition]
	if !ok {
		return nil
	}
	if t.quarantined && k.holder[c.Partition] == 0 {
		k.Quarantined--
	}
	delete(k.suspects, c.Partition)
	e := s.emit(KindRetry, CauseOperator)
	e.Keyspace, e.Partition, e.Token = k.ID, c.Partition, k.token[c.Partition]
	return nil
}
