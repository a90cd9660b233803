package redisfence

import (
	"fmt"
	"strings"
)

// MaxWords is how many words a command may have, its name included. Redis
// hands them to Lua on a stack of 8,000.
const MaxWords = 7000

// Cmd is one write command of a [Fence.Do]. Make it with [Command].
type Cmd struct {
	name string
	args []any
}

// Command returns a Redis command as one would type it, with its keys marked:
//
//	Command("RPUSH", Under(k, "journal"), "paid")
//	Command("MSET", Under(k, "a"), 1, Under(k, "b"), 2)
//
// At least one argument is a [DataKey], and every key of the command must be
// one; a Redis Cluster may refuse a command with a key it was not told of. The
// other arguments are strings, []byte, integers and floats. Anything else is
// refused by Do, times and durations too: which unit did you mean?
//
// Commands that Redis does not allow in scripts (such as SUBSCRIBE, EVAL or
// MULTI) fail when their turn has come.
func Command(name string, args ...any) Cmd { return Cmd{name, args} }

// encode appends the command's keys and its words, their number first, and
// says what Redis would only notice halfway.
func (c Cmd) encode(keys, words []any, mark string) ([]any, []any, error) {
	if c.name == "" || strings.ContainsAny(c.name, " \t\r\n") {
		return nil, nil, fmt.Errorf("%w: name %.40q, want one word", ErrInvalidCommand, c.name)
	}
	if n := 1 + len(c.args); n > MaxWords {
		return nil, nil, fmt.Errorf("%w: %s has %d words, want at most %d: use several commands", ErrInvalidCommand, c.name, n, MaxWords)
	}
	words = append(words, 1+len(c.args), c.name)
	named := len(keys)
	for i, a := range c.args {
		switch v := a.(type) {
		case DataKey:
			if v == DataKey(mark) {
				return nil, nil, fmt.Errorf("%w: %s touches %q, the key of the mark itself", ErrInvalidCommand, c.name, mark)
			}
			keys = append(keys, string(v))
			words = append(words, string(v))
		case string, []byte,
			int, int8, int16, int32, int64,
			uint, uint8, uint16, uint32, uint64,
			float32, float64:
			words = append(words, v)
		default:
			return nil, nil, fmt.Errorf("%w: argument %d of %s is a %T, want a DataKey, string, []byte, integer or float", ErrInvalidCommand, i+1, c.name, a)
		}
	}
	if len(keys) == named {
		return nil, nil, fmt.Errorf("%w: %s names no key: give its keys as DataKey", ErrInvalidCommand, c.name)
	}
	return keys, words, nil
}
