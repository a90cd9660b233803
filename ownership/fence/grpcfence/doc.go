// Package grpcfence guards gRPC services with fencing tokens. The client's
// interceptors send the stamp of its lease as metadata, the server's compare
// it in front of the handlers and refuse stale ones with FAILED_PRECONDITION
// and the current token.
//
//	leasehold-keyspace   orders
//	leasehold-partition  17
//	leasehold-token      34
//	leasehold-owner      w4
//	leasehold-resource   ledger      only for a named resource
//
// Partition and token are decimal digits without sign, space or leading zero,
// 0 to 4294967295 and 1 to 9007199254740991. The others have 1 to 255 bytes of
// UTF-8 without NUL; one that is not visible ASCII alone is sent under its name
// with -bin appended instead, as gRPC does with bytes. Each key appears once.
//
//	conn, err := grpc.NewClient(target,
//		grpc.WithChainUnaryInterceptor(grpcfence.UnaryClientInterceptor()),
//		grpc.WithChainStreamInterceptor(grpcfence.StreamClientInterceptor()))
//	_, err = orders.Write(ctx, req) // the handler's ctx
//	if errors.Is(err, fence.ErrStale) { … } // somebody newer owns it
//
//	gate := fence.NewGate(durable, nil)
//	grpc.NewServer(
//		grpc.ChainUnaryInterceptor(grpcfence.UnaryServerInterceptor(gate)),
//		grpc.ChainStreamInterceptor(grpcfence.StreamServerInterceptor(gate)))
//
// # Answers
//
//	FAILED_PRECONDITION  missing      a key of the stamp is absent
//	INVALID_ARGUMENT     malformed    a key is empty, repeated, too long or not as above
//	PERMISSION_DENIED    not_allowed  the server's own rule (Allow) refuses the stamp
//	FAILED_PRECONDITION  stale        the resource has seen a higher token
//	FAILED_PRECONDITION  other_owner  the resource has seen this token with another owner
//	UNAVAILABLE          unavailable  the durable guard, or an older call in flight, did not answer in time
//	ABORTED              interrupted  a newer owner came during the call: outcome unknown
//
// The word is the reason of a google.rpc.ErrorInfo of domain "leasehold.dev",
// in capitals as is usual there; its metadata has current_token and
// current_owner. In all but the last the handler was not called. [FromError]
// makes the typed error of it, and the client's interceptors call it.
//
// # Streams
//
// The stamp belongs to the whole stream. It is compared when the stream starts
// and again with each message that is received; and when a newer stamp comes,
// the stream's context ends and its SendMsg and RecvMsg return at once, also
// if they are waiting for a client that is paused. The newer owner waits until
// the handler has returned.
//
// # Claim
//
// A new owner claims with any call that its service takes as such: the first
// guarded call of a lease is its claim. A service whose owners may be silent
// for long should have a method that does nothing, guarded as the others.
// [Guard] makes a fence.Guard of it.
//
// # Promise and limits
//
// What package fence and its Gate promise, for what happens inside a handler,
// before it returns; not for what it leaves running, and only if one process
// serves the resource. A stamp says which lease a call belongs to, not who
// sent it.
//
// The server runs one goroutine for each message of a guarded stream that is
// being sent or received.
package grpcfence
