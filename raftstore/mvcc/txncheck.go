package mvcc

// MaxOps is how many compares or operations one list of a transaction may have.
// A nested transaction may have what the longest list around it leaves.
const MaxOps = 128

type opKind uint8

const (
	opNone opKind = iota
	opRange
	opPut
	opDelete
	opTxn
)

func (op *Op) kind() opKind {
	switch {
	case op.Range != nil:
		return opRange
	case op.Put != nil:
		return opPut
	case op.Delete != nil:
		return opDelete
	case op.Txn != nil:
		return opTxn
	}
	return opNone
}

// Check refuses what etcd refuses before it looks at any key: lists of more than MaxOps
// operations, empty keys, keys that one branch puts twice.
func (t *Txn) Check() error {
	if err := t.check(MaxOps); err != nil {
		return err
	}
	for _, ops := range [][]Op{t.Success, t.Failure} {
		if lone(ops) {
			continue
		}
		if _, ok := written(ops); !ok {
			return ErrDuplicateKey
		}
	}
	return nil
}

// lone says that a list has at most one writing operation and nothing nested:
// there is nothing that it could collide with.
func lone(ops []Op) bool {
	n := 0
	for i := range ops {
		switch ops[i].kind() {
		case opTxn:
			return false
		case opPut, opDelete:
			n++
		}
	}
	return n <= 1
}

// check looks at sizes, keys and options, here and in nested transactions.
func (t *Txn) check(most int) error {
	n := max(len(t.Compare), len(t.Success), len(t.Failure))
	if n > most {
		return ErrTooManyOps
	}
	for i := range t.Compare {
		if len(t.Compare[i].Key) == 0 {
			return ErrEmptyKey
		}
	}
	for _, ops := range [][]Op{t.Success, t.Failure} {
		for i := range ops {
			if err := ops[i].check(most - n); err != nil {
				return err
			}
		}
	}
	return nil
}

func (op *Op) check(most int) error {
	switch op.kind() {
	case opRange:
		return op.Range.Check()
	case opPut:
		return op.Put.Check()
	case opDelete:
		return op.Delete.Check()
	case opTxn:
		return op.Txn.check(most)
	}
	return ErrKeyNotFound
}

// Check refuses what etcd refuses before it looks at any key.
func (op *PutOp) Check() error {
	switch {
	case len(op.Key) == 0:
		return ErrEmptyKey
	case op.IgnoreValue && len(op.Value) > 0:
		return ErrValueProvided
	case op.IgnoreLease && op.Lease != 0:
		return ErrLeaseProvided
	}
	return nil
}

// Check refuses what etcd refuses before it looks at any key.
func (op *DeleteOp) Check() error {
	if len(op.Key) == 0 {
		return ErrEmptyKey
	}
	return nil
}

// ReadOnly reports whether no branch, nested ones included, can write.
func (t *Txn) ReadOnly() bool {
	return !t.has(func(op *Op) bool { return op.kind() != opRange && op.kind() != opTxn })
}

// Puts reports whether any branch has a put.
func (t *Txn) Puts() bool {
	return t.has(func(op *Op) bool { return op.kind() == opPut })
}

func (t *Txn) has(is func(*Op) bool) bool {
	for _, ops := range [][]Op{t.Success, t.Failure} {
		for i := range ops {
			if is(&ops[i]) || ops[i].kind() == opTxn && ops[i].Txn.has(is) {
				return true
			}
		}
	}
	return false
}
