package state

// Worker is what is remembered of a worker id across its sessions.
type Worker struct {
	ID          string
	Incarnation uint64    // of the newest session
	Session     SessionID // the newest one; 0 once it has ended
	Drained     bool
	// Opens are the clock readings of the last sessions opened, at most 3,
	// oldest first: a worker with 3 in 5 minutes is unstable.
	Opens []Clock

	// seen is when the last of its sessions ended; sessions counts those that
	// have not, the newest and those it superseded.
	seen     Clock
	sessions int
}

const keptOpens = 3

func workerKey(w *Worker) string { return w.ID }

// worker returns the record of an id, made if there is none.
func (s *State) worker(id string) *Worker {
	w, ok := s.workers[id]
	if !ok {
		w = &Worker{ID: id, seen: s.clock}
		s.workers[id] = w
		s.workerOrder = insertBy(s.workerOrder, w, workerKey)
	}
	return w
}

func (w *Worker) opened(at Clock) {
	if len(w.Opens) == keptOpens {
		w.Opens = append(w.Opens[:0], w.Opens[1:]...)
	}
	w.Opens = append(w.Opens, at)
}

// pruneWorkers forgets the ids that have been without a session for long. A
// drained one is kept: forgetting it would lift what an operator ordered.
func (s *State) pruneWorkers() {
	kept := s.workerOrder[:0]
	for _, w := range s.workerOrder {
		if w.sessions == 0 && !w.Drained && s.clock-w.seen >= WorkerRetention {
			delete(s.workers, w.ID)
			continue
		}
		kept = append(kept, w)
	}
	clear(s.workerOrder[len(kept):])
	s.workerOrder = kept
}

func (s *State) barWorker(c *BarWorker) error {
	w, err := s.knownWorker(c.Worker)
	if err != nil {
		return err
	}
	if c.Drained {
		s.drainWorker(w)
	} else if w.Drained {
		w.Drained = false
		s.emit(KindWorkerUndrain, CauseDrain).Worker = w.ID
	}
	return nil
}

func (s *State) knownWorker(id string) (*Worker, error) {
	if err := ValidateName("worker", "id", id); err != nil {
		return nil, err
	}
	w, ok := s.workers[id]
	if !ok {
		return nil, refuse(ReasonNotFound, "worker", "id", id, "a worker that has had a session within the last hour")
	}
	return w, nil
}

// drainWorker bars the id. What was kept for it is kept no longer, since it
// may not have it back.
func (s *State) drainWorker(w *Worker) {
	if w.Drained {
		return
	}
	w.Drained = true
	s.emit(KindWorkerDrain, CauseDrain).Worker = w.ID
	for _, k := range s.keyspaceOrder {
		k.removeSlot(w.ID)
	}
}

// evict bars the worker's present session for good, and the id until it is
// undrained. A strict lease lasts until it is released or expires all the
// same: nobody can know that the worker has stopped.
func (s *State) evict(c *Evict) error {
	w, err := s.knownWorker(c.Worker)
	if err != nil {
		return err
	}
	s.drainWorker(w)
	if x, ok := s.sessions[w.Session]; ok && !x.barred() {
		s.bar(x, SessionEvicted, CauseEvicted)
	}
	return nil
}
