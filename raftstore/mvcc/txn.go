package mvcc

// Leases says which leases exist; a Txn may attach keys to those alone. Nil
// stands for none.
type Leases func(id int64) bool

// Update is what a change did, in order.
type Update struct {
	Result *TxnResult
	// Events of the one new revision, in the order of the operations. Prev is
	// here what was there just before the event, an earlier change of the same
	// revision included; Store.Events tells what was there before the revision.
	Events []Event
}

// errWrites refuses Read a transaction that it must not be given.
const errWrites Error = "transaction can write"

// Txn carries a transaction out: compares, checks of the chosen branches, then all
// of it at one revision, or none and an error. token, when not 0, is given to
// the keys that it creates. It calls Check first.
//
// As in etcd all compares, also those of nested transactions, look at what was
// there before the transaction, and so do the checks.
func (s *Store) Txn(t *Txn, leases Leases, token uint64) (Update, error) {
	if err := t.Check(); err != nil {
		return Update{}, err
	}
	var room [8]bool
	path := s.path(t, room[:0])
	if _, err := (&checker{s: s, leases: leases}).branch(t, path); err != nil {
		return Update{}, err
	}
	w := &writer{s: s, token: token}
	result, _ := w.txn(t, path)
	w.end()
	return Update{Result: result, Events: w.events}, nil
}

// Read answers a read-only transaction, without changing anything. It calls
// Check first, and refuses a transaction that is not ReadOnly.
func (s *Store) Read(t *Txn) (*TxnResult, error) {
	if err := t.Check(); err != nil {
		return nil, err
	}
	if !t.ReadOnly() {
		return nil, errWrites
	}
	var room [8]bool
	path := s.path(t, room[:0])
	if _, err := (&checker{s: s}).branch(t, path); err != nil {
		return nil, err
	}
	result, _ := (&writer{s: s}).txn(t, path)
	return result, nil
}

// branch is the list of operations that is done.
func (t *Txn) branch(success bool) []Op {
	if success {
		return t.Success
	}
	return t.Failure
}

// path appends, for the transaction and then for the nested ones of its chosen
// branch, depth first, whether the compares hold.
func (s *Store) path(t *Txn, path []bool) []bool {
	ok := s.hold(t.Compare)
	path = append(path, ok)
	ops := t.branch(ok)
	for i := range ops {
		if ops[i].kind() == opTxn {
			path = s.path(ops[i].Txn, path)
		}
	}
	return path
}

// txn does the branch that path chose and returns the path that is left.
func (w *writer) txn(t *Txn, path []bool) (*TxnResult, []bool) {
	r := &TxnResult{Succeeded: path[0]}
	ops := t.branch(path[0])
	path = path[1:]
	if len(ops) > 0 {
		r.Ops = make([]OpResult, len(ops))
	}
	for i := range ops {
		op, o := &ops[i], &r.Ops[i]
		switch op.kind() {
		case opRange:
			o.Range, o.Revision = w.s.read(op.Range), w.seen()
		case opPut:
			o.Put, o.Revision = w.put(op.Put), w.revision()
		case opDelete:
			o.Delete = w.delete(op.Delete)
			o.Revision = w.seen()
		case opTxn:
			o.Txn, path = w.txn(op.Txn, path)
		}
	}
	return r, path
}

// checker looks whether the operations of the chosen branches can be done,
// before the first of them is.
type checker struct {
	s       *Store
	leases  Leases
	deletes []*DeleteOp // met so far
}

func (c *checker) branch(t *Txn, path []bool) ([]bool, error) {
	ops := t.branch(path[0])
	path = path[1:]
	var err error
	for i := range ops {
		switch op := &ops[i]; op.kind() {
		case opRange:
			err = c.s.checkRead(op.Range)
		case opPut:
			err = c.put(op.Put)
		case opDelete:
			c.deletes = append(c.deletes, op.Delete)
		case opTxn:
			path, err = c.branch(op.Txn, path)
		}
		if err != nil {
			return nil, err
		}
	}
	return path, nil
}

func (c *checker) put(op *PutOp) error {
	if op.Lease != 0 && (c.leases == nil || !c.leases(op.Lease)) {
		return ErrLeaseNotFound
	}
	if !op.IgnoreValue && !op.IgnoreLease {
		return nil
	}
	if c.s.Get(op.Key) == nil {
		return ErrKeyNotFound
	}
	// Only a deletion up to the end of all keys gets past Txn.Check when it
	// comes before a put of one of its keys (see writes.delete).
	for _, d := range c.deletes {
		if (span{d.Key, d.End}).contains(op.Key) {
			return ErrKeyNotFound
		}
	}
	return nil
}
