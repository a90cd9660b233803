package main

import (
	"bytes"
	"context"
	"fmt"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// placesIn are the keys of a queue, in its order: NAME, a slash and the session that
// the key dies with, in lower hex. Ordinary keys that happen to lie there are not.
func placesIn(name string, kvs []*mvccpb.KeyValue) (queue []*mvccpb.KeyValue) {
	for _, kv := range kvs {
		if kv.GetLease() != 0 && string(kv.GetKey()) == fmt.Sprintf("%s/%x", name, kv.GetLease()) {
			queue = append(queue, kv)
		}
	}
	return queue
}

// leader is what elect -l -o json prints; both are null when nobody leads.
type leader struct {
	Key   []byte `json:"key"`
	Value []byte `json:"value"`
}

// observe prints who leads, now and at each change, until ctx ends.
func observe(ctx context.Context, e env, name string) error {
	if name == "" {
		return usage("NAME is empty")
	}
	c, err := e.keys(ctx, true)
	if err != nil {
		return err
	}
	defer c.Close()
	var last leader
	first := true
	err = awaitKeys(ctx, c, name+"/", true, func(r *clientv3.GetResponse) (bool, error) {
		var now leader
		if queue := placesIn(name, r.Kvs); len(queue) > 0 {
			now = leader{queue[0].GetKey(), queue[0].GetValue()}
		}
		if !first && bytes.Equal(now.Key, last.Key) && bytes.Equal(now.Value, last.Value) {
			return false, nil
		}
		first, last = false, now
		return false, printLeader(e, now)
	}, clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend))
	if ctx.Err() != nil {
		return nil // being stopped is how an observer ends
	}
	return err
}

func printLeader(e env, l leader) error {
	if e.json() {
		return printJSONLine(e.stdout, l)
	}
	return e.say("%s", strings.TrimSuffix(valueCell(l.Value), "\n"))
}
