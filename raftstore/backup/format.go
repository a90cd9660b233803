package backup

// Format is the version of the files that this release writes. It reads those
// of every release before it.
func Format() int { return formatVersion }
