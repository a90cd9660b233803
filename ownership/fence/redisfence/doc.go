// Package redisfence guards data in Redis with fencing tokens. It keeps one
// mark per partition, in a hash beside the data:
//
//	leasehold:fence:{orders/17}   token 34, owner w4, at 1767225600
//	{orders/17}:journal           …
//
// A new owner claims its partitions before it works ([Fence.Claim], usually
// through worker.Claim). A write hands its commands to [Fence.Do]: a Lua script
// compares the token with the mark, raises the mark and runs the commands, and
// Redis lets nothing else run in between:
//
//	_, err := guard.Do(ctx, lease.Stamp(),
//		redisfence.Command("RPUSH", redisfence.Under(key, "journal"), "paid"))
//	if errors.Is(err, fence.ErrStale) {
//		return err // somebody newer owns the partition, nothing was written
//	}
//
// Promises: those of package fence, for as long as Redis keeps what it has
// acknowledged. Tokens are compared as exact integers. No clock decides
// anything; "at" is the server's, for people. After an error the caller knows
// whether nothing, something or an unknown part was written (see [ErrNotRun]).
//
// Not promised: a step whose outcome is unknown is never repeated behind the
// caller's back, but nobody else can tell what became of it, so writes that may
// be repeated should be idempotent. A command that fails in the middle does not
// undo those before it; Redis has no rollback. And a failover of Redis may lose
// writes it has acknowledged, marks and data alike: this package protects data
// that lives in the same Redis and is lost with it, nothing else. README.md
// says what that means and what to set.
//
// Marks have no expiry. There is one for each partition and each named
// resource; [Fence.Forget] removes those of names that are not used any more,
// and says when that is safe.
//
// The script is the plain file lua/fence.lua, for other languages as it stands.
//
// Each call of the server runs in one goroutine of its own, so that the end of
// a context is noticed at once. It ends with the answer, or at the latest with
// the client's timeouts; nothing else is started. [WithoutGoroutine] starts
// none at all.
package redisfence
