package mvcc

// Error is a refusal. All of this package's errors are of this type and are
// compared with ==; the texts are etcd's without its prefix.
type Error string

// Error is the text.
func (e Error) Error() string { return string(e) }

// The refusals.
const (
	ErrEmptyKey      Error = "key is not provided"
	ErrKeyNotFound   Error = "key not found"
	ErrValueProvided Error = "value is provided"
	ErrLeaseProvided Error = "lease is provided"
	ErrTooManyOps    Error = "too many operations in txn request"
	ErrDuplicateKey  Error = "duplicate key given in txn request"
	ErrInvalidSort   Error = "invalid sort option"
	ErrCompacted     Error = "mvcc: required revision has been compacted"
	ErrFuture        Error = "mvcc: required revision is a future revision"
	ErrLeaseNotFound Error = "requested lease not found"
	ErrNoSpace       Error = "mvcc: database space exceeded"
)
