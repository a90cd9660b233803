// Package fencetest shakes a guarded resource until it shows whether its guard
// holds. It is for the authors of guards: those of Leasehold are tested with
// it, and one of your own should be.
//
// A trial has a few owners of one partition, one after the other, each with a
// higher token. They claim, begin writes, are paused in the middle of one,
// commit it late, try again, or die on the way, in a random order that a seed
// fixes. What a step does to the resource is real; only the order is dealt out.
// Afterwards the resource is asked what it has accepted, and two rules are
// held against that:
//
//   - the tokens of accepted writes never fall, and
//   - after a claim has succeeded no write under a lower token is accepted.
//
// Besides, every write that was reported as accepted must be there, none that
// was refused may be, and in the end the newest owner must get its write
// through, whatever the others left behind.
//
// [Run] reports what it saw instead of failing the test, because a harness that
// finds nothing proves little by itself: run it once against the guarded
// resource and expect no stale write, and once against the same resource with
// the guard taken out, and expect some.
//
// Each owner of a trial is one goroutine; all have returned when Run returns.
package fencetest
