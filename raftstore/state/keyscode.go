package state

import (
	"math"

	"github.com/leasehold-dev/leasehold/raftstore/mvcc"
)

// maxTxnDepth is how deep transactions may be nested: one more than there are
// operations for, since every level takes at least one of them (see Txn.Check).
const maxTxnDepth = mvcc.MaxOps + 1

// The kinds of an operation, as they are written.
const (
	opNone   uint8 = 0
	opRange  uint8 = 1
	opPut    uint8 = 2
	opDelete uint8 = 3
	opTxn    uint8 = 4
)

func (t *Transact) code(c *coder) { codeTxn(c, &t.Txn, maxTxnDepth) }

func (x *Compact) code(c *coder) { c.varint(&x.Revision) }

func (g *GrantLease) code(c *coder) {
	fixed(c, &g.Session)
	c.varint(&g.TTL)
	codeOwner(c, &g.Owner)
}

func (r *RevokeLease) code(c *coder) { fixed(c, &r.Session) }

func (e *Enqueue) code(c *coder) {
	blob(c, &e.Name)
	fixed(c, &e.Session)
	blob(c, &e.Value)
	c.flag(&e.Update)
}

func (q *Sequence) code(c *coder) {
	blob(c, &q.Prefix)
	blob(c, &q.Value)
	number(c, &q.Session)
	number(c, &q.After)
}

func (a *SetAlarm) code(c *coder) {
	number(c, &a.Member)
	c.flag(&a.Raised)
}

// blob codes bytes. What is read is a copy, so that a key that is kept does not
// keep the whole entry; none reads back as nil.
func blob(c *coder, v *[]byte) {
	n := c.length(len(*v), 1)
	if !c.reading {
		c.buf = append(c.buf, *v...)
		return
	}
	if *v = nil; n > 0 {
		*v, c.buf = append([]byte(nil), c.buf[:n]...), c.buf[n:]
	}
}

// revision codes a number that is not negative.
func revision(c *coder, v *int64) {
	u := uint64(*v)
	if c.uvarint(&u); !c.reading {
		return
	}
	if u > math.MaxInt64 {
		c.fail("revision out of range")
		u = 0
	}
	*v = int64(u)
}

// leaseID codes a session as the store of keys has it.
func leaseID(c *coder, v *int64) {
	u := uint64(*v)
	if c.uvarint(&u); c.reading {
		*v = int64(u)
	}
}

// codeTxn bounds the depth, so that no input can exhaust the stack.
func codeTxn(c *coder, t *mvcc.Txn, depth int) {
	if depth == 0 {
		c.fail("transactions are nested too deep")
		return
	}
	op := func(c *coder, op *mvcc.Op) { codeOp(c, op, depth-1) }
	list(c, &t.Compare, 5, codeCompare)
	list(c, &t.Success, 1, op)
	list(c, &t.Failure, 1, op)
}

func codeCompare(c *coder, x *mvcc.Compare) {
	blob(c, &x.Key)
	blob(c, &x.End)
	number(c, &x.Target)
	number(c, &x.Result)
	if x.Target == mvcc.CompareValue {
		blob(c, &x.Value)
	} else {
		c.varint(&x.Number)
	}
}

func codeOp(c *coder, op *mvcc.Op, depth int) {
	kind := opKind(op)
	if number(c, &kind); c.reading {
		switch kind {
		case opNone:
		case opRange:
			op.Range = new(mvcc.RangeOp)
		case opPut:
			op.Put = new(mvcc.PutOp)
		case opDelete:
			op.Delete = new(mvcc.DeleteOp)
		case opTxn:
			op.Txn = new(mvcc.Txn)
		default:
			c.fail("kind of operation")
		}
	}
	switch {
	case op.Range != nil:
		codeRange(c, op.Range)
	case op.Put != nil:
		codePut(c, op.Put)
	case op.Delete != nil:
		codeDelete(c, op.Delete)
	case op.Txn != nil:
		codeTxn(c, op.Txn, depth)
	}
}

func opKind(op *mvcc.Op) uint8 {
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

func codeRange(c *coder, r *mvcc.RangeOp) {
	blob(c, &r.Key)
	blob(c, &r.End)
	c.varint(&r.Revision)
	c.varint(&r.Limit)
	number(c, &r.Target)
	number(c, &r.Order)
	c.flag(&r.KeysOnly)
	c.flag(&r.CountOnly)
	c.varint(&r.MinModRevision)
	c.varint(&r.MaxModRevision)
	c.varint(&r.MinCreateRevision)
	c.varint(&r.MaxCreateRevision)
}

func codePut(c *coder, p *mvcc.PutOp) {
	blob(c, &p.Key)
	blob(c, &p.Value)
	leaseID(c, &p.Lease)
	flags(c, &p.PrevKV, &p.IgnoreValue, &p.IgnoreLease)
}

func codeDelete(c *coder, d *mvcc.DeleteOp) {
	blob(c, &d.Key)
	blob(c, &d.End)
	c.flag(&d.PrevKV)
}

// flags codes up to eight flags as one byte.
func flags(c *coder, all ...*bool) {
	var b uint8
	for i, v := range all {
		if *v {
			b |= 1 << i
		}
	}
	if number(c, &b); !c.reading {
		return
	}
	if b>>len(all) != 0 {
		c.fail("flags")
		return
	}
	for i, v := range all {
		*v = b&(1<<i) != 0
	}
}
