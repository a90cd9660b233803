// Package httpfence guards resources behind HTTP with fencing tokens. The
// client sends the stamp of its lease in request headers, the server compares
// it in front of its handler and refuses stale ones with 409 and the current
// token.
//
//	Leasehold-Keyspace:  orders
//	Leasehold-Partition: 17
//	Leasehold-Token:     34
//	Leasehold-Owner:     w4
//	Leasehold-Resource:  ledger      only for a named resource
//
// Partition and token are decimal digits without sign, space or leading zero,
// 0 to 4294967295 and 1 to 9007199254740991. The others have 1 to 255 bytes;
// a byte that is not visible ASCII, and each of % , " is written as % and two
// hex digits. Each header appears once. (Spaces around a value are not part of
// it in HTTP/1, so a server cannot tell "12 " from "12" there; in HTTP/2 it is
// refused.)
//
// [Transport] stamps the requests of a client from their contexts, which the
// worker library has prepared:
//
//	client := &http.Client{Transport: &httpfence.Transport{}}
//	req, _ := http.NewRequestWithContext(ctx, "PUT", url, body) // the handler's ctx
//	resp, err := client.Do(req)
//	…
//	if err := httpfence.CheckResponse(resp); err != nil {
//		return err // errors.Is(err, fence.ErrStale): somebody newer owns it
//	}
//
// [Middleware] is the server's side, over a [fence.Gate]; [ClaimHandler] and
// [Guard] let a new owner claim before its first write:
//
//	gate := fence.NewGate(durable, nil)
//	mux.Handle("PUT /orders/{id}", httpfence.Middleware(gate)(orders))
//	mux.Handle("POST /claim", httpfence.ClaimHandler(gate))
//
// # Answers
//
//	428  missing      a header of the stamp is absent
//	400  malformed    a header is empty, repeated, too long or not as above
//	403  not_allowed  the server's own rule (Allow) refuses the stamp
//	409  stale        the resource has seen a higher token
//	409  other_owner  the resource has seen this token with another owner
//	503  unavailable  the durable guard, or an older write in flight, did not answer in time
//	503  interrupted  a newer owner came while the request was handled: outcome unknown
//
// Each has the word in the header Leasehold-Refused and a JSON body after RFC
// 9457; 409 also has Leasehold-Current-Token and Leasehold-Current-Owner. In
// all but the last the handler was not called.
//
// # Promise and limits
//
// What package fence and its Gate promise, for what happens inside the
// handler, before it returns; not for what it leaves running, and only if one
// process serves the resource. A stamp says which lease a request belongs to,
// not who sent it: authentication is the server's, before this. Which paths
// belong to which partition is the server's as well, see [Allow].
//
// The package uses the standard library only. It starts no goroutine of its
// own, but for one short call when a newer owner interrupts a request.
package httpfence
