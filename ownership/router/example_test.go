package router_test

import (
	"context"
	"fmt"
	"log"
	"net/http"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/leasehold-dev/leasehold/ownership/router"
	"github.com/leasehold-dev/leasehold/ownership/worker"
)

// A front end that sends every request for /customers/ID to the worker that
// owns the customer's partition.
func ExampleProxy() {
	ctx := context.Background()
	r, err := router.New(router.Config{Servers: "10.0.0.1:7400,10.0.0.2:7400", Keyspaces: []string{"customers"}})
	if err != nil {
		log.Fatal(err)
	}
	go r.Run(ctx)
	if err := r.WaitReady(ctx); err != nil {
		log.Fatal(err)
	}
	proxy, err := router.NewProxy(router.ProxyConfig{
		Router: r, Keyspace: "customers",
		Key: func(r *http.Request) ([]byte, error) { return []byte(r.PathValue("id")), nil },
	})
	if err != nil {
		log.Fatal(err)
	}
	http.Handle("/customers/{id}", proxy)
	log.Fatal(http.ListenAndServe(":8080", nil))
}

// The owners' side: a worker that serves the partitions it holds, and tells
// others who does.
func ExampleNotOwner() {
	ctx := context.Background()
	const servers, endpoint = "10.0.0.1:7400,10.0.0.2:7400", "10.0.1.7:9000"
	where, err := router.New(router.Config{Servers: servers, Keyspaces: []string{"customers"}})
	if err != nil {
		log.Fatal(err)
	}
	go where.Run(ctx)
	var held router.Holdings
	go http.ListenAndServe(endpoint, router.NotOwner(&held, where, http.DefaultServeMux))
	w, err := worker.Join(ctx, worker.Config{Servers: servers, Endpoint: endpoint})
	if err != nil {
		log.Fatal(err)
	}
	err = w.Run(ctx, "customers", func(ctx context.Context, l *worker.Lease) error {
		defer held.Add(l.Keyspace(), l.Partition(), uint64(l.Token()), l.Check)()
		select {
		case <-l.Draining():
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	})
	log.Fatal(err)
}

// Calls that go to the owner of their key; any generated client runs over it.
func ExamplePool() {
	r, err := router.New(router.Config{Servers: "10.0.0.1:7400", Keyspaces: []string{"customers"}})
	if err != nil {
		log.Fatal(err)
	}
	pool, err := router.NewPool(router.PoolConfig{
		Router: r, Keyspace: "customers",
		Options: []grpc.DialOption{grpc.WithTransportCredentials(credentials.NewTLS(nil))},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	ctx := router.WithKey(context.Background(), []byte("customer-4711"))
	answer, err := grpc_health_v1.NewHealthClient(pool).Check(ctx, &grpc_health_v1.HealthCheckRequest{})
	fmt.Println(answer, err)
}
