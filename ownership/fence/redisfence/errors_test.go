package redisfence

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"

	"github.com/redis/go-redis/v9"
)

// Whoever hears "nothing was written" tries again, so that must be true. Only
// what is known to have been refused, or never sent, may say it.
func TestWhatAnErrorSaysOfTheOutcome(t *testing.T) {
	for _, c := range []struct {
		err      error
		want     error
		specific error
	}{
		{answer("BUSY Redis is busy running a script."), ErrNotRun, nil},
		{answer("LOADING Redis is loading the dataset in memory"), ErrNotRun, nil},
		{answer("CLUSTERDOWN Hash slot not served"), ErrNotRun, nil},
		{answer("NOREPLICAS Not enough good replicas to write."), ErrNotRun, nil},
		{answer("MISCONF Errors writing to the AOF file"), ErrNotRun, nil},
		{answer("READONLY You can't write against a read only replica."), ErrNotRun, ErrReadOnly},
		{answer("OOM command not allowed when used memory > 'maxmemory'."), ErrNotRun, ErrOutOfMemory},
		{redis.ErrCrossSlot, ErrNotRun, ErrCrossSlot},
		{answer("ERR Error running script (call to f_1): @user_script:1: Script killed by user with SCRIPT KILL..."), ErrNotRun, nil},
		{answer("ERR Script killed by user with SCRIPT KILL. script: 1, on @user_script:1."), ErrNotRun, nil},
		{&net.OpError{Op: "dial", Err: errors.New("connection refused")}, ErrNotRun, nil},
		{redis.ErrClosed, ErrNotRun, nil},
		{redis.ErrPoolTimeout, ErrNotRun, nil},

		{answer("ERR user_script:40: too many results to unpack script: 1, on @user_script:40."), ErrOutcomeUnknown, nil},
		{io.EOF, ErrOutcomeUnknown, io.EOF},
		{&net.OpError{Op: "read", Err: errors.New("connection reset by peer")}, ErrOutcomeUnknown, nil},
		{&net.OpError{Op: "write", Err: errors.New("broken pipe")}, ErrOutcomeUnknown, nil},
		{context.DeadlineExceeded, ErrOutcomeUnknown, context.DeadlineExceeded},
		{fmt.Errorf("gave up: %w", context.Canceled), ErrOutcomeUnknown, context.Canceled},
		{errors.New("something else"), ErrOutcomeUnknown, nil},
	} {
		got := outcome(c.err)
		other := ErrOutcomeUnknown
		if c.want == ErrOutcomeUnknown {
			other = ErrNotRun
		}
		if !errors.Is(got, c.want) || errors.Is(got, other) || !errors.Is(got, c.err) {
			t.Errorf("%v: got %v, want %v", c.err, got, c.want)
		}
		if c.specific != nil && !errors.Is(got, c.specific) {
			t.Errorf("%v: got %v, want %v too", c.err, got, c.specific)
		}
	}
}
