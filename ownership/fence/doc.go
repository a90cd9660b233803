// Package fence is the part of Leasehold that a resource needs: the fencing
// token, the rule that refuses an older one, and what a guard looks like.
//
// A lease alone cannot promise exclusion: its owner may be paused between
// looking at the lease and writing. So every write carries the token of the
// lease it was made under, and the resource remembers the highest one it has
// accepted and refuses what is below. Three things make that work:
//
//   - Claim: a new owner writes its token to the resource before it starts.
//     From then on the old owner's writes bounce, also when the new owner has
//     not written anything yet.
//   - Compare and write in one step: check and write share one transaction,
//     one statement or one lock of the resource. A check that is done first
//     and a write that is done later prove nothing.
//   - One rule, [Check], whatever the resource is.
//
// Promise: once a guard has accepted a token for a partition it never accepts
// a smaller one, and never the same one from another owner. It does not
// promise that an accepted write is the last of its owner, and it knows
// nothing of time: no clock decides anything here.
//
// The package uses the standard library only and starts no goroutine. Guards
// for real resources live in its sub-packages. [Gate] guards what has no
// transactions and is reached through one process, [All] claims at several
// resources, [Memory] is for tests. A guard of your own is [Check] in the
// resource's own atomic step; shake it with the package fencetest.
package fence
