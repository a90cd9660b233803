package fence

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Token is a fencing token. Tokens are issued in rising order, across the
// whole cluster and for ever; 0 was never issued to anybody.
type Token uint64

// MaxToken is the highest token there can be. Up to it, a number is exact in
// SQL BIGINT, JavaScript, Lua, jq and 64-bit floats.
const MaxToken Token = 1<<53 - 1

// String is the token in decimal digits.
func (t Token) String() string { return strconv.FormatUint(uint64(t), 10) }

// Stamp is what a write carries: for which partition it is, and under whose
// token it is made.
type Stamp struct {
	Keyspace  string
	Partition uint32
	Token     Token
	Owner     string // the worker's id

	// Resource names what is written, where that is not the partition itself;
	// usually empty. The mark is then kept under this name alone, whatever the
	// keyspace and the partition are: tokens rise across the whole cluster, so
	// leases of two keyspaces may share a resource, one after the other. Valid
	// UTF-8 without NUL, at most MaxResourceLen bytes.
	Resource string
}

// MaxResourceLen is the longest name of a resource, in bytes: short enough to
// be a key in every database.
const MaxResourceLen = 255

// Key is what a guard keeps a mark of.
type Key struct {
	Resource  string // alone, if it is not empty
	Keyspace  string
	Partition uint32
}

// Key returns what the stamp is compared under.
func (s Stamp) Key() Key {
	if s.Resource != "" {
		return Key{Resource: s.Resource}
	}
	return Key{Keyspace: s.Keyspace, Partition: s.Partition}
}

// String is for messages: "orders/17", or the resource's name in quotes.
func (k Key) String() string {
	if k.Resource != "" {
		return strconv.Quote(k.Resource)
	}
	return k.Keyspace + "/" + strconv.FormatUint(uint64(k.Partition), 10)
}

// Compare orders keys, as Sorted does.
func (k Key) Compare(o Key) int {
	return cmp.Or(
		cmp.Compare(k.Resource, o.Resource),
		cmp.Compare(k.Keyspace, o.Keyspace),
		cmp.Compare(k.Partition, o.Partition),
	)
}

// String is for messages: "orders/17 token 33 of w2".
func (s Stamp) String() string {
	return fmt.Sprintf("%s token %d of %s", s.Key(), s.Token, s.Owner)
}

// ErrInvalid is matched by every error about a stamp that can belong to no
// lease, such as one without an owner. Nothing was compared or changed.
var ErrInvalid = errors.New("invalid stamp")

// Validate says what is wrong with a stamp that no lease can have issued. An
// empty owner is refused because it would make all owners look the same.
func (s Stamp) Validate() error {
	switch {
	case s.Keyspace == "":
		return fmt.Errorf("%w: keyspace is empty", ErrInvalid)
	case s.Owner == "":
		return fmt.Errorf("%w: owner of %s/%d is empty", ErrInvalid, s.Keyspace, s.Partition)
	case s.Token == 0:
		return fmt.Errorf("%w: token of %s/%d is 0, which was never issued", ErrInvalid, s.Keyspace, s.Partition)
	case s.Token > MaxToken:
		return fmt.Errorf("%w: token %d of %s/%d is above %d", ErrInvalid, s.Token, s.Keyspace, s.Partition, MaxToken)
	case len(s.Resource) > MaxResourceLen:
		return fmt.Errorf("%w: resource %.40q… of %s/%d has %d bytes, want at most %d", ErrInvalid, s.Resource, s.Keyspace, s.Partition, len(s.Resource), MaxResourceLen)
	case !utf8.ValidString(s.Resource) || strings.ContainsRune(s.Resource, 0):
		return fmt.Errorf("%w: resource %.40q of %s/%d is not UTF-8 without NUL", ErrInvalid, s.Resource, s.Keyspace, s.Partition)
	}
	return nil
}

// Validate checks all stamps of a claim.
func Validate(stamps []Stamp) error {
	for _, s := range stamps {
		if err := s.Validate(); err != nil {
			return err
		}
	}
	return nil
}
