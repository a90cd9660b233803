package backup

import (
	"errors"
	"fmt"
)

// ErrDamaged matches every *DamagedError.
var ErrDamaged = errors.New("backup is damaged")

// DamagedError says that a file is not what was written, or not a backup.
type DamagedError struct {
	Offset int64 // of the part that is wrong, in bytes from the beginning
	What   string
}

// Error names the offset.
func (e *DamagedError) Error() string {
	return fmt.Sprintf("backup is damaged at byte %d: %s", e.Offset, e.What)
}

// Is matches ErrDamaged.
func (e *DamagedError) Is(target error) bool { return target == ErrDamaged }

// VersionError refuses a file that a newer release has written.
type VersionError struct{ Got, Max int }

// Error says what to do.
func (e *VersionError) Error() string {
	return fmt.Sprintf("backup has format %d, this release knows up to %d: use a newer release", e.Got, e.Max)
}
