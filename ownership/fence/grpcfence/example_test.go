package grpcfence_test

import (
	"context"
	"errors"
	"fmt"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/leasehold-dev/leasehold/ownership/fence"
	"github.com/leasehold-dev/leasehold/ownership/fence/grpcfence"
)

// A server guards its service, and two owners of one partition call it. The
// service is gRPC's own health check here, so that the example needs no
// generated code.
func Example() {
	gate := fence.NewGate(nil, nil) // nil: marks in memory; give it a sqlfence to keep them
	server := grpc.NewServer(
		grpc.ChainUnaryInterceptor(grpcfence.UnaryServerInterceptor(gate)),
		grpc.ChainStreamInterceptor(grpcfence.StreamServerInterceptor(gate)))
	healthpb.RegisterHealthServer(server, health.NewServer())
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	served := make(chan error)
	go func() { served <- server.Serve(listener) }()

	conn, err := grpc.NewClient(listener.Addr().String(),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithChainUnaryInterceptor(grpcfence.UnaryClientInterceptor()),
		grpc.WithChainStreamInterceptor(grpcfence.StreamClientInterceptor()))
	if err != nil {
		fmt.Println(err)
		return
	}
	service := healthpb.NewHealthClient(conn)

	// In a worker's handler ctx carries the lease already.
	call := func(lease fence.Stamp) error {
		ctx := fence.NewContext(context.Background(), lease, 0)
		_, err := service.Check(ctx, &healthpb.HealthCheckRequest{})
		return err
	}
	fmt.Println(call(fence.Stamp{Keyspace: "orders", Partition: 17, Token: 33, Owner: "w2"}))
	fmt.Println(call(fence.Stamp{Keyspace: "orders", Partition: 17, Token: 34, Owner: "w4"}))
	err = call(fence.Stamp{Keyspace: "orders", Partition: 17, Token: 33, Owner: "w2"})
	fmt.Println(errors.Is(err, fence.ErrStale), err)

	_ = conn.Close()
	server.Stop()
	<-served
	// Output:
	// <nil>
	// <nil>
	// true write to orders/17 token 33 of w2 refused: the resource has seen token 34 of w4
}
