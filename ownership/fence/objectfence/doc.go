// Package objectfence guards objects of an HTTP object store, S3 and what speaks
// like it, with fencing tokens, by conditional requests. The mark is kept in the
// metadata of the guarded object itself, and every write is a PUT on the
// condition that the object is still the one whose mark was compared:
//
//	HEAD object            → ETag "a1", token 33 of w2
//	                         34 is higher: go on
//	PUT object             If-Match: "a1", metadata: token 34 of w4
//	                       → 412 somebody was faster: from the start
//
// Check and write are one step because the condition is part of the write. A
// marker object beside the data would not do: nothing ties the two together.
//
//	f, err := objectfence.Open(ctx, objectfence.Config{URL: "https://bucket.example/orders/", Trailer: true})
//	…
//	err = f.Put(ctx, lease.Stamp(), data) // errors.Is(err, fence.ErrStale): somebody newer owns it
//
// # One object for each partition
//
// The unit of fencing is the object, so each key (a partition or a named
// resource) has exactly one. Write large or many data objects under new names
// first, unguarded, and then their list as the guarded object: what it does
// not name does not exist.
//
// An object that no newer owner has touched knows nothing of it. [Fence.Claim]
// closes that gap: it writes the object anew, content unchanged, with the new
// token; where there is none, it creates one that [Fence.Get] reports as not
// there. This moves the content once for each change of owner. (A copy onto
// itself within the store would be cheaper, but a copy's condition is about
// its source, so it is no compare-and-set.)
//
// # What the store must do
//
// Give strong ETags, honour If-Match and If-None-Match: *, keep metadata, and
// give another ETag when only metadata has changed. In S3, R2 and MinIO the
// ETag is a hash of the content alone: a claim would not change it, and a PUT
// that was on its way before the claim would still match. For them set
// [Config].Trailer, which ends every content with a line of its own. [Open]
// tries all this out and fails with a *[UnfitError] if the store will not do:
// do not go by a provider's name, conditional writes came late to many. The
// tests of this package run against a small server, not against providers.
//
// # Promise and limits
//
// What package fence promises, for writes through Put; a plain PUT or DELETE
// by somebody else is not held back. Put and Claim are of the kind "outcome
// unknown" when the store does not answer: each carries a random id, by which
// an answer that was lost is recognised later, and none is applied twice. Two
// parallel writes of one lease are both accepted, and the later one stays.
//
// The package uses the standard library only and starts no goroutine.
package objectfence
