package httpfence_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/leasehold-dev/leasehold/ownership/fence"
	"github.com/leasehold-dev/leasehold/ownership/fence/httpfence"
)

// A server guards its handler, and two owners of one partition write to it.
func Example() {
	gate := fence.NewGate(nil, nil) // nil: marks in memory; give it a sqlfence to keep them
	mux := http.NewServeMux()
	mux.Handle("POST /claim", httpfence.ClaimHandler(gate))
	mux.Handle("PUT /orders/{id}", httpfence.Middleware(gate)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		lease, _ := fence.FromContext(r.Context())
		fmt.Printf("order %s written by %s\n", r.PathValue("id"), lease.Owner)
	})))
	server := httptest.NewServer(mux)
	defer server.Close()

	client := &http.Client{Transport: &httpfence.Transport{}}
	defer client.CloseIdleConnections()
	defer http.DefaultTransport.(*http.Transport).CloseIdleConnections() // what a nil Base uses
	guard, err := httpfence.NewGuard(server.URL+"/claim", nil)
	if err != nil {
		fmt.Println(err)
		return
	}

	// In a worker's handler ctx carries the lease already, and the library has
	// claimed it with worker.Claim(guard).
	write := func(lease fence.Stamp) error {
		ctx := fence.NewContext(context.Background(), lease, 0)
		req, err := http.NewRequestWithContext(ctx, http.MethodPut, server.URL+"/orders/7", nil)
		if err != nil {
			return err
		}
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		return httpfence.CheckResponse(resp)
	}
	old := fence.Stamp{Keyspace: "orders", Partition: 17, Token: 33, Owner: "w2"}
	next := fence.Stamp{Keyspace: "orders", Partition: 17, Token: 34, Owner: "w4"}

	fmt.Println(guard.Claim(context.Background(), []fence.Stamp{old}), write(old))
	fmt.Println(guard.Claim(context.Background(), []fence.Stamp{next}))
	err = write(old)
	fmt.Println(errors.Is(err, fence.ErrStale), err)
	fmt.Println(write(next))
	// Output:
	// order 7 written by w2
	// <nil> <nil>
	// <nil>
	// true write to orders/17 token 33 of w2 refused: the resource has seen token 34 of w4
	// order 7 written by w4
	// <nil>
}
