package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// callersPerConnection is how many callers share one client.
const callersPerConnection = 16

// figures of one measurement.
type figures struct {
	PerSecond float64       `json:"ops_per_second,omitempty"`
	P50       time.Duration `json:"-"`
	P99       time.Duration `json:"-"`
	Seconds   float64       `json:"seconds,omitempty"` // of processor time, a minute
	// ServerMicros and ClientMicros are the processor time of one operation.
	ServerMicros float64 `json:"server_cpu_us,omitempty"`
	ClientMicros float64 `json:"client_cpu_us,omitempty"`
}

func summarize(took []time.Duration, in time.Duration) figures {
	if len(took) == 0 {
		return figures{}
	}
	slices.Sort(took)
	return figures{
		PerSecond: float64(len(took)) / in.Seconds(),
		P50:       took[len(took)/2],
		P99:       took[min(len(took)-1, len(took)*99/100)],
	}
}

// callers runs n of them for a time, each with its own operation, made by
// prepare before the clock starts.
func callers(ctx context.Context, c *cluster, n int, seconds float64,
	prepare func(ctx context.Context, cl *clientv3.Client, i int) (func(ctx context.Context) error, error),
) (figures, error) {
	var clients []*clientv3.Client
	defer func() {
		for _, cl := range clients {
			_ = cl.Close()
		}
	}()
	ops := make([]func(context.Context) error, n)
	for i := range n {
		if i%callersPerConnection == 0 {
			cl, err := c.client()
			if err != nil {
				return figures{}, err
			}
			clients = append(clients, cl)
		}
		op, err := prepare(ctx, clients[len(clients)-1], i)
		if err != nil {
			return figures{}, fmt.Errorf("prepare caller %d: %w", i, err)
		}
		ops[i] = op
	}
	warm := time.Duration(seconds * float64(time.Second) / 5)
	run := func(d time.Duration) ([]time.Duration, time.Duration, error) {
		start := time.Now()
		took := make([][]time.Duration, n)
		errs := make([]error, n)
		var all sync.WaitGroup
		for i := range n {
			all.Go(func() {
				for time.Since(start) < d {
					t := time.Now()
					if errs[i] = ops[i](ctx); errs[i] != nil {
						return
					}
					took[i] = append(took[i], time.Since(t))
				}
			})
		}
		all.Wait()
		for _, err := range errs {
			if err != nil {
				return nil, 0, err
			}
		}
		return slices.Concat(took...), time.Since(start), nil
	}
	if _, _, err := run(warm); err != nil {
		return figures{}, err
	}
	servers, err := c.cpu()
	if err != nil {
		return figures{}, err
	}
	client := ownCPU()
	took, in, err := run(time.Duration(seconds * float64(time.Second)))
	if err != nil {
		return figures{}, err
	}
	f := summarize(took, in)
	client = ownCPU() - client
	after, err := c.cpu()
	f.ServerMicros = float64((after - servers).Microseconds()) / float64(max(len(took), 1))
	f.ClientMicros = float64(client.Microseconds()) / float64(max(len(took), 1))
	return f, err
}

// cas is a compare-and-set of a caller's own key, by its mod revision.
func cas(ctx context.Context, cl *clientv3.Client, i int) (func(context.Context) error, error) {
	key := fmt.Sprintf("cas/%04d", i)
	put, err := cl.Put(ctx, key, "0000000000000000")
	if err != nil {
		return nil, err
	}
	rev := put.Header.Revision
	return func(ctx context.Context) error {
		r, err := cl.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(key), "=", rev)).
			Then(clientv3.OpPut(key, "0123456789abcdef")).Commit()
		if err != nil {
			return err
		}
		if !r.Succeeded {
			return fmt.Errorf("compare-and-set of %s at revision %d did not hold", key, rev)
		}
		rev = r.Header.Revision
		return nil
	}, nil
}

// get is a linearizable read of one key.
func get(ctx context.Context, cl *clientv3.Client, i int) (func(context.Context) error, error) {
	key := fmt.Sprintf("cas/%04d", i)
	if _, err := cl.Put(ctx, key, "0123456789abcdef"); err != nil && status.Code(err) != codes.Unimplemented {
		return nil, err
	}
	return func(ctx context.Context) error {
		r, err := cl.Get(ctx, key)
		if err == nil && len(r.Kvs) != 1 {
			err = fmt.Errorf("read of %s found %d keys", key, len(r.Kvs))
		}
		return err
	}, nil
}
