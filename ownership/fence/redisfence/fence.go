package redisfence

import (
	"context"
	"fmt"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-dev/leasehold/ownership/fence"
)

// claimBatch is how many stamps go into one pipeline: enough that the round
// trip does not count, few enough that Redis, which runs one thing at a time,
// serves others in between.
const claimBatch = 1000

// Fence guards the data of one Redis. It implements fence.Guard. It keeps
// nothing but the client and is safe for concurrent use.
type Fence struct {
	client  redis.UniversalClient
	prefix  string
	counter fence.Counter
	inline  bool
}

var _ fence.Guard = (*Fence)(nil)

// Option changes a Fence.
type Option func(*Fence)

// WithCounter makes every decision be counted. Use it to alert on refusals.
func WithCounter(c fence.Counter) Option { return func(f *Fence) { f.counter = c } }

// WithPrefix sets what the keys of marks begin with, in place of
// "leasehold:fence:". Use it when two Leasehold clusters, whose tokens have
// nothing to do with one another, share a Redis; their data keys must differ
// too then. Braces are escaped, they would make a hash tag.
func WithPrefix(prefix string) Option {
	return func(f *Fence) { f.prefix = escapeBraces(prefix) }
}

// WithoutGoroutine makes calls of the server run in the caller's goroutine.
// This saves two switches between goroutines, which on a busy machine can cost
// as much as the rest of a write, and the end of a context is then noticed at
// the client's ReadTimeout only (at once while the call waits for a
// connection). Use it with a ReadTimeout that is short against the TTL.
func WithoutGoroutine() Option { return func(f *Fence) { f.inline = true } }

// New returns a guard that uses the client, which stays the caller's. A single
// server, Sentinel and Redis Cluster will do, Redis 5 or later; a redis.Ring
// will not, see [Fence.Check]. Nothing is sent yet.
func New(client redis.UniversalClient, opts ...Option) *Fence {
	f := &Fence{client: client, prefix: "leasehold:fence:"}
	for _, o := range opts {
		o(f)
	}
	return f
}

// Do compares the stamp with the mark, raises the mark and runs the commands,
// in one step that nothing else on the server comes between. It returns the
// reply of each command, as the Redis client decodes what a script returns:
// strings, int64, nil, []any. Integers above 2^53 in a reply are rounded (Lua
// has floats only); what is stored is exact.
//
// Errors, all with the stamp in their text:
//
//   - *fence.StaleError: the stamp is refused; nothing was written.
//   - fence.ErrInvalid, ErrInvalidCommand: nothing was sent.
//   - *CorruptError: the mark cannot be trusted; nothing was written.
//   - *CommandError: a command failed. Those before it have been written.
//   - ErrNotRun: no server, or it refused the step; nothing was written.
//     ErrReadOnly, ErrCrossSlot and ErrOutOfMemory say why.
//   - ErrOutcomeUnknown: no answer. Do is never repeated by the client library,
//     whatever its MaxRetries is; if you repeat it, with the same stamp, the
//     commands may run twice. So write what can be written twice: SET rather
//     than INCR, HSET of an event's id rather than RPUSH.
func (f *Fence) Do(ctx context.Context, s fence.Stamp, commands ...Cmd) ([]any, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	if len(commands) == 0 {
		return nil, fmt.Errorf("write to %s: %w: there is none", s, ErrInvalidCommand)
	}
	mark := f.MarkKey(s.Key())
	keys, args := []any{mark}, stampArgs(s)
	for _, c := range commands {
		var err error
		if keys, args, err = c.encode(keys, args, mark); err != nil {
			return nil, fmt.Errorf("write to %s: %w", s, err)
		}
	}
	answer, err := f.once(ctx, fenceScript, keys, args)
	if err != nil {
		return nil, fmt.Errorf("write to %s: %w", s, err)
	}
	replies, err := f.decode(s, commands, answer)
	fence.Count(f.counter, 1, accepted(err))
	return replies, err
}

// Claim implements fence.Guard: one round trip for a thousand stamps, in the
// order of fence.Sorted. Stamps are accepted one by one; when it returns an
// error that is no *fence.ClaimError, some may have been accepted already, and
// claiming all of them again is harmless.
func (f *Fence) Claim(ctx context.Context, stamps []fence.Stamp) error {
	if err := fence.Validate(stamps); err != nil {
		return err
	}
	var refused []*fence.StaleError
	for batch := range slices.Chunk(fence.Sorted(stamps), claimBatch) {
		more, err := f.claim(ctx, batch)
		if err != nil {
			return fmt.Errorf("claim %d partitions in Redis: %w", len(stamps), err)
		}
		refused = append(refused, more...)
	}
	var err error
	if len(refused) > 0 {
		err = &fence.ClaimError{Refused: refused}
	}
	fence.Count(f.counter, len(stamps), err)
	return err
}

func (f *Fence) claim(ctx context.Context, batch []fence.Stamp) ([]*fence.StaleError, error) {
	calls := make([]call, len(batch))
	for i, s := range batch {
		calls[i] = call{keys: []any{f.MarkKey(s.Key())}, args: stampArgs(s)}
	}
	answers, err := f.many(ctx, fenceScript, calls)
	if err != nil {
		return nil, err
	}
	var refused []*fence.StaleError
	for i, s := range batch {
		_, err := f.decode(s, nil, answers[i])
		switch e := err.(type) { //nolint:errorlint // decode returns it bare
		case nil:
		case *fence.StaleError:
			refused = append(refused, e)
		default:
			return nil, err
		}
	}
	return refused, nil
}

// Seen returns the highest token accepted under a key and whose it is; the
// zero Mark if there is none. It is for people and for tests: a decision that
// is made on it is out of date when it is made.
func (f *Fence) Seen(ctx context.Context, k fence.Key) (fence.Mark, error) {
	key := f.MarkKey(k)
	var cmd *redis.SliceCmd
	err := f.await(ctx, func() error {
		cmd = f.client.HMGet(ctx, key, "token", "owner")
		return cmd.Err()
	})
	if redis.HasErrorPrefix(err, "WRONGTYPE") {
		return fence.Mark{}, &CorruptError{Key: k, Redis: key, Field: "type", Value: "no hash"}
	}
	if err != nil {
		return fence.Mark{}, fmt.Errorf("read mark of %s: %w", k, err)
	}
	return f.mark(k, cmd.Val())
}

// mark checks the fields token and owner of a mark as HMGET gives them.
func (f *Fence) mark(k fence.Key, fields []any) (fence.Mark, error) {
	if fields[0] == nil && fields[1] == nil {
		return fence.Mark{}, nil
	}
	token, _ := fields[0].(string)
	owner, _ := fields[1].(string)
	t, ok := parseToken(token)
	switch {
	case !ok:
		return fence.Mark{}, &CorruptError{Key: k, Redis: f.MarkKey(k), Field: "token", Value: token}
	case owner == "":
		return fence.Mark{}, &CorruptError{Key: k, Redis: f.MarkKey(k), Field: "owner"}
	}
	return fence.Mark{Token: t, Owner: owner}, nil
}

func stampArgs(s fence.Stamp) []any { return []any{s.Token.String(), s.Owner} }
