package redisfence

import (
	"context"
	"crypto/sha1"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"
)

// Scripts has the Lua scripts, lua/fence.lua and lua/forget.lua, for those who
// load them with tools of their own.
//
//go:embed lua/*.lua
var Scripts embed.FS

type script struct{ source, sha string }

var (
	//go:embed lua/fence.lua
	fenceSource string
	//go:embed lua/forget.lua
	forgetSource string

	fenceScript  = newScript(fenceSource)
	forgetScript = newScript(forgetSource)
)

func newScript(source string) script {
	sum := sha1.Sum([]byte(source)) // Redis's name for it; nothing rests on its strength
	return script{source, hex.EncodeToString(sum[:])}
}

// call is one run of a script.
type call struct{ keys, args []any }

func (s script) command(ctx context.Context, byName bool, c call) *redis.Cmd {
	name, body := "eval", s.source
	if byName {
		name, body = "evalsha", s.sha
	}
	words := make([]any, 0, 3+len(c.keys)+len(c.args))
	words = append(words, name, body, len(c.keys))
	words = append(append(words, c.keys...), c.args...)
	cmd := redis.NewCmd(ctx, words...)
	cmd.SetFirstKeyPos(3)
	return cmd
}

// unrepeated is a command that the client library must not send twice on its
// own: by default it does when a connection breaks, whatever was written.
type unrepeated struct{ *redis.Cmd }

// NoRetry overrides the library's.
func (unrepeated) NoRetry() bool { return true }

// once runs a script that may write, at most once. Its errors match ErrNotRun
// or ErrOutcomeUnknown.
func (f *Fence) once(ctx context.Context, s script, keys, args []any) (any, error) {
	if err := ended(ctx); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotRun, err)
	}
	cmd := s.command(ctx, true, call{keys, args})
	err := f.await(ctx, func() error { return f.client.Process(ctx, unrepeated{cmd}) })
	if unloaded(err) { // the server has not seen it yet, or has forgotten it
		cmd = s.command(ctx, false, call{keys, args})
		err = f.await(ctx, func() error { return f.client.Process(ctx, unrepeated{cmd}) })
	}
	if err != nil {
		return nil, outcome(err)
	}
	return cmd.Val(), nil
}

// many runs a script that may be repeated, once for each call, in pipelines
// and in order.
func (f *Fence) many(ctx context.Context, s script, calls []call) ([]any, error) {
	if err := ended(ctx); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotRun, err)
	}
	answers := make([]any, len(calls))
	todo := make([]int, len(calls))
	for i := range todo {
		todo[i] = i
	}
	// By name; loaded, and by name; and in full, for a server that has
	// forgotten the script again, such as one that was just promoted.
	for try := 0; len(todo) > 0; try++ {
		pipe := f.client.Pipeline()
		cmds := make([]*redis.Cmd, len(todo))
		for i, n := range todo {
			cmds[i] = s.command(ctx, try < 2, calls[n])
			_ = pipe.Process(ctx, cmds[i]) // queues it
		}
		err := f.await(ctx, func() error {
			if try == 1 {
				_ = f.client.ScriptLoad(ctx, s.source).Err() // if it fails the third try tells
			}
			_, err := pipe.Exec(ctx)
			return err
		})
		var reply redis.Error
		if err != nil && !errors.As(err, &reply) {
			return nil, outcome(err)
		}
		var left []int
		for i, n := range todo {
			switch err := cmds[i].Err(); {
			case err == nil:
				answers[n] = cmds[i].Val()
			case unloaded(err) && try < 2:
				left = append(left, n)
			default:
				return nil, outcome(err)
			}
		}
		todo = left
	}
	return answers, nil
}

func unloaded(err error) bool { return redis.HasErrorPrefix(err, "NOSCRIPT") }

// await runs a call of the client library and gives it up when ctx ends. The
// library would look at ctx only before it sends, and then wait for its own
// timeout, while the caller's lease runs out. What a call given up has made
// must not be looked at.
func (f *Fence) await(ctx context.Context, call func() error) error {
	if f.inline || ctx.Done() == nil {
		return call()
	}
	done := make(chan error, 1)
	go func() { done <- call() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-done:
		return err
	default:
		return fmt.Errorf("gave up waiting for Redis: %w", ended(ctx))
	}
}
