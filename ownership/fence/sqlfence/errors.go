package sqlfence

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/leasehold-dev/leasehold/ownership/fence"
)

// Sentinels for errors.Is. Whenever one of them comes back, nothing has been
// accepted, ErrOutcomeUnknown excepted.
var (
	// ErrNoTable: call Migrate, or run the file of sql/ with your own tool.
	ErrNoTable = errors.New("table leasehold_fence is missing: call Migrate, or run the schema of your database from sqlfence/sql")
	// ErrWrongTable is matched by every *TableError.
	ErrWrongTable = errors.New("table leasehold_fence is not the one of this version")
	// ErrTokenType is matched by the *TableError about the token column: the
	// database would compare tokens as text, "9" above "10".
	ErrTokenType = errors.New("column token of leasehold_fence is not an integer")
	// ErrBadRow is matched by every *RowError.
	ErrBadRow = errors.New("a row of leasehold_fence holds what no guard has written")
	// ErrNoTransaction: Guard got no transaction, or one that has ended.
	ErrNoTransaction = errors.New("guard needs the open transaction that does the write")
	// ErrReadOnly: the connection leads to a replica, or its transaction is
	// read-only.
	ErrReadOnly = errors.New("guard on a read-only connection: it must reach the primary, in a transaction that may write")
	// ErrBlocked is matched when a lock was not free in time; a *BlockedError
	// says who has it.
	ErrBlocked = errors.New("another transaction keeps its lock")
	// ErrOutcomeUnknown: the connection was lost while it committed. The write
	// is there or it is not; look before you write again, or write in such a way
	// that twice is the same as once.
	ErrOutcomeUnknown = errors.New("outcome of the commit is unknown")
)

// TableError says what about the table is not as Migrate makes it. It matches
// ErrWrongTable, and ErrTokenType if it is about the column token.
type TableError struct {
	Column string // or "primary key", "engine"
	Found  string // "" if it is missing
	Want   string // "" if it should not be there
}

// Error names the column, what it is and what it should be.
func (e *TableError) Error() string {
	switch {
	case e.Found == "":
		return fmt.Sprintf("%v: %s is missing, want %s; rename the table and let Migrate make it anew, or alter it", ErrWrongTable, e.Column, e.Want)
	case e.Want == "":
		return fmt.Sprintf("%v: column %s (%s) is not known here: drop it, or use the version that made it", ErrWrongTable, e.Column, e.Found)
	}
	return fmt.Sprintf("%v: %s is %s, want %s; alter it", ErrWrongTable, e.Column, e.Found, e.Want)
}

// Is matches ErrWrongTable, and ErrTokenType by the column.
func (e *TableError) Is(target error) bool {
	return target == ErrWrongTable || target == ErrTokenType && e.Column == "token"
}

// RowError says which row holds a value that no guard has written: a token that
// is NULL, no integer or outside 1 … fence.MaxToken, or no owner. Correct the
// row by hand; until then everything under its key is refused. It matches
// ErrBadRow.
type RowError struct {
	Row   string // the key, as in messages: orders/17
	Found string
}

// Error names the row and the value.
func (e *RowError) Error() string {
	return fmt.Sprintf("%v: %s: %s; want a token of 1 to %d and an owner", ErrBadRow, e.Row, e.Found, fence.MaxToken)
}

// Is matches ErrBadRow.
func (e *RowError) Is(target error) bool { return target == ErrBadRow }

// Retryable tells whether err is one of those that databases give to one of two
// transactions that got in each other's way: a serialization failure, the
// victim of a deadlock, SQLite's stale snapshot, a lock that was not free in
// time. The transaction has done nothing and may be tried again from its start,
// Guard included. It knows the errors of pgx, lib/pq, go-sql-driver/mysql and
// modernc.org/sqlite.
func Retryable(err error) bool {
	switch classify(err) {
	case conflict, blocked:
		return true
	}
	return false
}

// CommitError gives the error of a COMMIT its meaning: ErrOutcomeUnknown,
// unless the database itself has answered that it did not commit. [Fence.Do]
// and Claim use it; callers of Guard with a transaction of their own may.
func CommitError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, sql.ErrTxDone), refusedCommit(err):
		return fmt.Errorf("commit: %w", explain(err))
	}
	return fmt.Errorf("commit: %w: %w", ErrOutcomeUnknown, err)
}

// refusedCommit tells whether the server said itself that it rolled back. The
// classes of PostgreSQL that it ends a session with (08, 57) prove nothing: they
// may come after the commit.
func refusedCommit(err error) bool {
	if state := sqlState(err); state != "" {
		return !strings.HasPrefix(state, "08") && !strings.HasPrefix(state, "57")
	}
	if n := mysqlNumber(err); n != 0 {
		return n != 1053 && n != 1927 && n != 3168 // shutdown, killed: as above
	}
	_, sqlite := sqliteCode(err)
	return sqlite || strings.Contains(err.Error(), "commit unexpectedly resulted in rollback")
}

// class is what matters of a driver's error.
type class uint8

const (
	other class = iota
	noTable
	wrongTable
	readOnly
	blocked
	conflict
)

var sqlStates = map[string]class{
	"42P01": noTable,
	"42703": wrongTable, "42P10": wrongTable, "42804": wrongTable, "42883": wrongTable, "23502": wrongTable,
	"25006": readOnly,
	"55P03": blocked, "57014": blocked,
	"40001": conflict, "40P01": conflict,
}

var mysqlNumbers = map[uint64]class{
	1146: noTable,
	1054: wrongTable, 1136: wrongTable, 1364: wrongTable,
	1290: readOnly, 1792: readOnly, 1836: readOnly,
	1205: blocked,
	1213: conflict, 1020: conflict,
}

func classify(err error) class {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return other
	}
	if state := sqlState(err); state != "" {
		return sqlStates[state]
	}
	if n := mysqlNumber(err); n != 0 {
		return mysqlNumbers[n]
	}
	if code, ok := sqliteCode(err); ok {
		switch msg := err.Error(); {
		case code == 517: // SQLITE_BUSY_SNAPSHOT
			return conflict
		case code&0xff == 5, code&0xff == 6: // BUSY, LOCKED
			return blocked
		case code&0xff == 8:
			return readOnly
		case strings.Contains(msg, "no such table: leasehold_fence"), strings.Contains(msg, "no such table: main.leasehold_fence"):
			return noTable
		case strings.Contains(msg, "no such column"), strings.Contains(msg, "has no column"),
			strings.Contains(msg, "ON CONFLICT clause does not match"), strings.Contains(msg, "NOT NULL constraint failed: leasehold_fence"):
			return wrongTable
		}
	}
	return other
}

// explain puts the sentinel before a driver's error.
func explain(err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, sql.ErrTxDone) {
		return fmt.Errorf("%w: %w", ErrNoTransaction, err)
	}
	var sentinel error
	switch classify(err) {
	case noTable:
		sentinel = ErrNoTable
	case wrongTable:
		sentinel = ErrWrongTable
	case readOnly:
		sentinel = ErrReadOnly
	case blocked:
		sentinel = ErrBlocked
	default:
		return err
	}
	if errors.Is(err, sentinel) {
		return err
	}
	return fmt.Errorf("%w: %w", sentinel, err)
}

// sqlState is the five letters of pgx and lib/pq.
func sqlState(err error) string {
	var e interface{ SQLState() string }
	if errors.As(err, &e) {
		return e.SQLState()
	}
	return ""
}

// sqliteCode is the extended code of modernc.org/sqlite.
func sqliteCode(err error) (int, bool) {
	var e interface {
		error
		Code() int
	}
	if errors.As(err, &e) {
		return e.Code(), true
	}
	return 0, false
}

// mysqlNumber is the field Number of *mysql.MySQLError, which has no method for
// it; users of other databases should not have to link that driver.
func mysqlNumber(err error) uint64 {
	var number uint64
	walk(err, func(e error) bool {
		v := reflect.ValueOf(e)
		if v.Kind() != reflect.Pointer || v.IsNil() || v.Elem().Kind() != reflect.Struct {
			return false
		}
		f := v.Elem().FieldByName("Number")
		if !f.IsValid() || f.Kind() != reflect.Uint16 {
			return false
		}
		number = f.Uint()
		return true
	})
	return number
}

// walk calls f for err and all that it wraps until f says true.
func walk(err error, f func(error) bool) bool {
	if err == nil {
		return false
	}
	if f(err) {
		return true
	}
	switch e := err.(type) { //nolint:errorlint // this is the walk that errors.As does
	case interface{ Unwrap() error }:
		return walk(e.Unwrap(), f)
	case interface{ Unwrap() []error }:
		for _, sub := range e.Unwrap() {
			if walk(sub, f) {
				return true
			}
		}
	}
	return false
}
