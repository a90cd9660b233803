package demo

import (
	"context"
	"fmt"
)

// Audit is what the ledger says about itself.
type Audit struct {
	Written          int // rows
	Missing          int // orders 1…last of a partition that are not there
	Duplicated       int // rows of an order that was there before
	OutOfSequence    int // first rows of an order whose predecessor came later or never
	TokenRegressions int // rows accepted under a token below one accepted before
	Foreign          int // rows of no known order: a partition, number or text never sent
	// Examples are the first few rows that break a rule, in words.
	Examples []string
}

// Audit reads every row in the order of acceptance and holds it against the
// stream: every order 1…last of every partition exactly once, in sequence,
// under tokens that never fall.
func (l *Ledger) Audit(ctx context.Context, src *Source, last int64) (Audit, error) {
	rows, err := l.db.QueryContext(ctx, `SELECT partition, seq, token, worker, item FROM orders ORDER BY id`)
	if err != nil {
		return Audit{}, fmt.Errorf("read ledger: %w", err)
	}
	defer rows.Close() // reading only; rows.Err is looked at
	a := newAuditor(src, last)
	for rows.Next() {
		var o Order
		var partition, token int64
		if err := rows.Scan(&partition, &o.Seq, &token, &o.Worker, &o.Item); err != nil {
			return Audit{}, fmt.Errorf("read ledger: %w", err)
		}
		o.Partition, o.Token = uint32(partition), uint64(token)
		a.row(o)
	}
	if err := rows.Err(); err != nil {
		return Audit{}, fmt.Errorf("read ledger: %w", err)
	}
	return a.finish(), nil
}

type auditor struct {
	src   *Source
	last  int64
	audit Audit
	parts []partitionAudit
}

type partitionAudit struct {
	seen   map[int64]bool
	newest int64 // highest number so far
	token  uint64
	owner  string
}

func newAuditor(src *Source, last int64) *auditor {
	return &auditor{src: src, last: last, parts: make([]partitionAudit, src.Partitions)}
}

func (a *auditor) row(o Order) {
	a.audit.Written++
	if o.Partition >= a.src.Partitions || o.Seq < 1 || o.Seq > a.last || o.Item != a.src.Item(o.Partition, o.Seq) {
		a.audit.Foreign++
		a.example("orders/%d: row %q of %s is no order that was sent", o.Partition, o.Item, o.Worker)
		return
	}
	p := &a.parts[o.Partition]
	if p.seen == nil {
		p.seen = map[int64]bool{}
	}
	switch {
	case p.seen[o.Seq]:
		a.audit.Duplicated++
		a.example("orders/%d: order %d is there again, written by %s under token %d", o.Partition, o.Seq, o.Worker, o.Token)
	case o.Seq != p.newest+1:
		a.audit.OutOfSequence++
		a.example("orders/%d: order %d of %s came after order %d", o.Partition, o.Seq, o.Worker, p.newest)
	}
	if o.Token < p.token {
		a.audit.TokenRegressions++
		a.example("orders/%d: a write of %s under token %d was accepted after %s wrote under %d", o.Partition, o.Worker, o.Token, p.owner, p.token)
	} else {
		p.token, p.owner = o.Token, o.Worker
	}
	p.seen[o.Seq] = true
	p.newest = max(p.newest, o.Seq)
}

func (a *auditor) finish() Audit {
	for _, p := range a.parts {
		a.audit.Missing += int(a.last) - len(p.seen)
	}
	return a.audit
}

func (a *auditor) example(format string, args ...any) {
	if len(a.audit.Examples) < 4 {
		a.audit.Examples = append(a.audit.Examples, fmt.Sprintf(format, args...))
	}
}
