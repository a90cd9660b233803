package sqlfence

import (
	"database/sql"
	"fmt"

	"github.com/leasehold-dev/leasehold/ownership/fence"
)

// NotAppliedError says that a guarded one-statement write changed no row:
// either the stamp was fenced, or the row was not there. It counts as the first
// (it matches fence.ErrStale), because taking zero rows for success is how
// stale writes get lost unnoticed.
type NotAppliedError struct{ Stamp fence.Stamp }

// Error names the stamp.
func (e *NotAppliedError) Error() string {
	return fmt.Sprintf("write to %s changed no row: it was fenced, or its row is missing", e.Stamp)
}

// Is matches fence.ErrStale.
func (e *NotAppliedError) Is(target error) bool { return target == fence.ErrStale }

// Applied checks the result of a write that carries its guard in its own
// statement, see sql/README.md: no row changed is a *NotAppliedError. With
// MySQL's dialects open the database with clientFoundRows=true; otherwise a row
// that was set to what it held already counts as not changed.
func Applied(res sql.Result, s fence.Stamp) error {
	n, err := res.RowsAffected()
	if err != nil {
		return fmt.Errorf("count the rows written for %s: %w", s, err)
	}
	if n == 0 {
		return &NotAppliedError{Stamp: s}
	}
	return nil
}
