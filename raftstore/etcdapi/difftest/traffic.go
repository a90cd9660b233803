package difftest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// tester is one client of a history: it does one thing after the other, each
// at whichever server etcd's own client takes.
type tester struct {
	id   int
	c    *clientv3.Client
	h    *history
	rng  *rand.Rand
	n    int
	seen map[string]int64 // mod revisions as last read
}

const (
	testedKeys  = 8
	testTimeout = 2 * time.Second
	testPrefix  = "rk/"
)

// run goes on until ctx ends, with a short pause after each operation so that
// checking the history stays cheap.
func (u *tester) run(ctx context.Context) {
	for ctx.Err() == nil {
		u.one()
		select {
		case <-ctx.Done():
		case <-time.After(time.Duration(1+u.rng.IntN(8)) * time.Millisecond):
		}
	}
}

// one draws an operation, carries it out and records it.
func (u *tester) one() {
	u.n++
	req := request{key: fmt.Sprint(testPrefix, u.rng.IntN(testedKeys))}
	unique := fmt.Sprintf("%d-%d", u.id, u.n)
	switch n := u.rng.IntN(10); {
	case n < 4:
		req.kind = "get"
	case n < 8:
		req.kind, req.expect = "cas", u.seen[req.key]
	case n < 9:
		req.kind = "put"
	default:
		req.kind = "delete"
	}
	if req.kind != "get" {
		req.value, req.marker = unique, testPrefix+"marker/"+unique
	}
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	r := record{client: u.id, req: req, call: u.h.now()}
	resp, err := u.do(ctx, req)
	r.ret = u.h.now()
	if err != nil {
		if req.kind == "get" {
			return // it has told nothing
		}
		r.unknown = true
	} else {
		r.resp = resp
		u.seen[req.key] = resp.revision
		if req.kind == "delete" {
			u.seen[req.key] = 0
		}
	}
	u.h.add(r)
}

// do carries it out.
func (u *tester) do(ctx context.Context, req request) (response, error) {
	mark := clientv3.OpPut(req.marker, "")
	var r *clientv3.TxnResponse
	var err error
	switch req.kind {
	case "get":
		g, err := u.c.Get(ctx, req.key)
		if err != nil {
			return response{}, err
		}
		return read(g.Kvs, g.Header.Revision), nil
	case "put":
		r, err = u.c.Txn(ctx).Then(clientv3.OpPut(req.key, req.value), mark).Commit()
	case "delete":
		r, err = u.c.Txn(ctx).Then(clientv3.OpDelete(req.key), mark).Commit()
	case "cas":
		r, err = u.c.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(req.key), "=", req.expect)).
			Then(clientv3.OpPut(req.key, req.value), mark).Else(clientv3.OpGet(req.key)).Commit()
	}
	if err != nil {
		return response{}, err
	}
	if !r.Succeeded {
		return read(r.Responses[0].GetResponseRange().Kvs, r.Header.Revision), nil
	}
	return response{done: true, value: req.value, revision: r.Header.Revision, header: r.Header.Revision}, nil
}
