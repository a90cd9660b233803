package sqlonce

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// Limits of a row.
const (
	// MaxKeyLen is the longest key, in bytes.
	MaxKeyLen = 255
	// MaxResultLen is the longest result, in bytes: 1 MiB. Keep what is longer
	// in a table of its own and its id as the result.
	MaxResultLen = 1 << 20
)

// Errors to look for with errors.Is. After each of them nothing of this call
// has been kept, but for what ErrLost and ErrUnknown say.
var (
	// ErrInvalid: the key is empty, too long, no UTF-8 or contains NUL. The
	// database was not asked.
	ErrInvalid = errors.New("invalid idempotency key")
	// ErrMismatch: the key was used for another request. Do not try again; the
	// caller has made two requests with one key.
	ErrMismatch = errors.New("idempotency key was used for another request")
	// ErrInProgress: the first call with this key has not ended within the time
	// of WithWait. Try again later with the same key (over HTTP: 409 with
	// Retry-After).
	ErrInProgress = errors.New("request is in progress")
	// ErrNested: fn has called DoTx with its own key.
	ErrNested = errors.New("idempotency key is in use by this very transaction")
	// ErrResultTooLong: fn has returned more than MaxResultLen bytes.
	ErrResultTooLong = errors.New("result is too long")
	// ErrLost: the row was gone when fn had returned, because the transaction
	// had been rolled back under it: a deadlock in MariaDB or MySQL whose error
	// fn has swallowed. What fn wrote after that, these two databases have
	// committed statement by statement. fn must return the errors it meets.
	ErrLost = errors.New("transaction was rolled back while the request ran")
	// ErrUnknown: the commit failed, and it is not known whether it took
	// effect. Call again with the same key to find out.
	ErrUnknown = errors.New("outcome unknown")
	// ErrNoTable: call Migrate, or run the file of sql/ with your own tool.
	ErrNoTable = errors.New("table leasehold_once is missing")
	// ErrAge: the age given to Prune is below MinAge.
	ErrAge = errors.New("age is too short")
)

func checkKey(key string) error {
	switch {
	case key == "":
		return fmt.Errorf("%w: it is empty", ErrInvalid)
	case len(key) > MaxKeyLen:
		return fmt.Errorf("%w: %.40q… has %d bytes, want at most %d", ErrInvalid, key, len(key), MaxKeyLen)
	case !utf8.ValidString(key) || strings.ContainsRune(key, 0):
		return fmt.Errorf("%w: %.40q is not UTF-8 without NUL", ErrInvalid, key)
	}
	return nil
}
