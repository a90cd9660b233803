package difftest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// read is what the pairs of one key tell.
func read(kvs []*mvccpb.KeyValue, header int64) response {
	if len(kvs) == 0 {
		return response{header: header}
	}
	return response{value: string(kvs[0].Value), revision: kvs[0].ModRevision, header: header}
}

// endKey is written when all is over: a watch that has told of it is done.
const endKey = testPrefix + "end"

// follow watches everything from a revision on until endKey is written. Each
// of clients is taken for a while, when hop is set, so that the watch resumes
// at another server from the revision after its last.
func follow(ctx context.Context, name string, clients []*clientv3.Client, from int64, hop time.Duration, h *history, rng *rand.Rand) (*observed, error) {
	o := &observed{name: name, from: from}
	next := from
	for {
		wctx, cancel := context.WithCancel(ctx)
		if hop > 0 {
			wctx, cancel = context.WithTimeout(ctx, hop/2+time.Duration(rng.Int64N(int64(hop))))
		}
		done, err := follow1(wctx, o, clients[rng.IntN(len(clients))], &next, h)
		cancel()
		switch {
		case done:
			return o, nil
		case ctx.Err() != nil:
			return o, fmt.Errorf("watch %s: the end did not come, the next would be %d", name, next)
		case err != nil && !errors.Is(err, rpctypes.ErrNoLeader) && wctx.Err() == nil:
			return o, fmt.Errorf("watch %s from %d: %w", name, next, err)
		}
	}
}

// follow1 is one watch from *next on.
func follow1(ctx context.Context, o *observed, c *clientv3.Client, next *int64, h *history) (done bool, err error) {
	for r := range c.Watch(clientv3.WithRequireLeader(ctx), testPrefix, clientv3.WithPrefix(), clientv3.WithRev(*next), clientv3.WithPrevKV(), clientv3.WithFragment()) {
		if err := r.Err(); err != nil {
			return false, err
		}
		var m []change
		for _, e := range r.Events {
			m = append(m, changeOf(e, h.now()))
			*next = e.Kv.ModRevision + 1
			done = done || string(e.Kv.Key) == endKey
		}
		o.messages = append(o.messages, m)
		if done {
			return true, nil
		}
	}
	return false, nil
}
