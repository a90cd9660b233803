package fence

import (
	"errors"
	"fmt"
	"strconv"
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
}

// String is for messages: "orders/17 token 33 of w2".
func (s Stamp) String() string {
	return fmt.Sprintf("%s/%d token %d of %s", s.Keyspace, s.Partition, s.Token, s.Owner)
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
