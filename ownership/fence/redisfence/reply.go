package redisfence

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/leasehold-dev/leasehold/ownership/fence"
)

// decode turns the answer of lua/fence.lua into the replies of the commands or
// the error. A refusal comes back as a bare *fence.StaleError.
func (f *Fence) decode(s fence.Stamp, commands []Cmd, reply any) ([]any, error) {
	words, _ := reply.([]any)
	if len(words) == 0 {
		return nil, f.strange(s, reply)
	}
	switch what, rest := words[0], words[1:]; {
	case what == "ok" && len(rest) == len(commands):
		return rest, nil
	case what == "failed" && len(rest) >= 2:
		n, _ := rest[0].(int64)
		text, _ := rest[1].(string)
		if n < 1 || int(n) > len(commands) {
			break
		}
		return nil, &CommandError{Stamp: s, Index: int(n - 1), Command: commands[n-1].name, Replies: rest[2:], Err: explain(answer(text))}
	case (what == fence.ReasonStale || what == fence.ReasonOtherOwner) && len(rest) == 2:
		token, _ := rest[0].(string)
		owner, _ := rest[1].(string)
		if current, ok := parseToken(token); ok {
			return nil, &fence.StaleError{Stamp: s, Current: current, CurrentOwner: owner, Reason: what.(string)}
		}
	case what == "corrupt" && len(rest) == 2:
		field, _ := rest[0].(string)
		value, _ := rest[1].(string)
		return nil, &CorruptError{Key: s.Key(), Redis: f.MarkKey(s.Key()), Field: field, Value: value}
	}
	return nil, f.strange(s, reply)
}

// strange is for an answer that fence.lua does not give.
func (f *Fence) strange(s fence.Stamp, reply any) error {
	return fmt.Errorf("write to %s: %w: the script answered %.80q", s, ErrOutcomeUnknown, fmt.Sprint(reply))
}

// accepted returns what the guard decided, for the counter: a command that
// failed did so after its stamp had been accepted.
func accepted(err error) error {
	var failed *CommandError
	if errors.As(err, &failed) {
		return nil
	}
	return err
}

// parseToken reads a token in the only form that it is written in.
func parseToken(text string) (fence.Token, bool) {
	n, err := strconv.ParseUint(text, 10, 64)
	t := fence.Token(n)
	return t, err == nil && t > 0 && t <= fence.MaxToken && t.String() == text
}
