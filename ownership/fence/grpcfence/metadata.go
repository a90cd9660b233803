package grpcfence

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"google.golang.org/grpc/metadata"

	"github.com/leasehold-dev/leasehold/ownership/fence"
)

// Keys of the metadata that carries a stamp. Those of names end in "-bin" for
// a value that is not visible ASCII.
const (
	KeyKeyspace  = "leasehold-keyspace"
	KeyPartition = "leasehold-partition"
	KeyToken     = "leasehold-token"
	KeyOwner     = "leasehold-owner"
	KeyResource  = "leasehold-resource" // absent unless the stamp names a resource
)

// MaxNameLen is the longest keyspace, owner or resource, in bytes.
const MaxNameLen = 255

const bin = "-bin"

// ErrMissing is matched by the error about a call without a stamp, or with a
// part of one.
var ErrMissing = errors.New("fencing stamp is missing")

// MetadataError says which key of a stamp is not as it has to be, and why. It
// matches ErrMissing if the key is absent, otherwise fence.ErrInvalid.
type MetadataError struct {
	Key    string // of the metadata
	Value  string // what came, cut to 40 bytes; empty if it is absent
	Want   string // what is allowed
	absent bool
}

// Error names the key, the value and the limit.
func (e *MetadataError) Error() string {
	if e.absent {
		return fmt.Sprintf("metadata %s is missing: want %s", e.Key, e.Want)
	}
	return fmt.Sprintf("metadata %s: %q: want %s", e.Key, e.Value, e.Want)
}

// Is matches ErrMissing or fence.ErrInvalid.
func (e *MetadataError) Is(target error) bool {
	if e.absent {
		return target == ErrMissing
	}
	return target == fence.ErrInvalid
}

const (
	wantOne       = "exactly one value"
	wantName      = "1 to 255 bytes of UTF-8 without NUL; under the key itself visible ASCII only"
	wantPartition = "decimal digits, 0 to 4294967295, without sign, space or leading zero"
	wantToken     = "decimal digits, 1 to 9007199254740991, without sign, space or leading zero"
)

// SetStamp writes the stamp into the metadata of a call, replacing what is
// there. It fails, with fence.ErrInvalid, on a stamp that ParseStamp would
// refuse.
func SetStamp(md metadata.MD, s fence.Stamp) error {
	if err := s.Validate(); err != nil {
		return err
	}
	names := []struct{ key, value string }{{KeyKeyspace, s.Keyspace}, {KeyOwner, s.Owner}, {KeyResource, s.Resource}}
	for _, n := range names[:2] {
		if !nameOK(n.value) {
			return fmt.Errorf("%w: %s %.40q with %d bytes: want %s", fence.ErrInvalid, n.key, n.value, len(n.value), wantName)
		}
	}
	for _, n := range names {
		md.Delete(n.key)
		md.Delete(n.key + bin)
		switch {
		case n.value == "":
		case visible(n.value):
			md.Set(n.key, n.value)
		default:
			md.Set(n.key+bin, n.value)
		}
	}
	md.Set(KeyPartition, strconv.FormatUint(uint64(s.Partition), 10))
	md.Set(KeyToken, s.Token.String())
	return nil
}

// ParseStamp reads a stamp from the metadata of a call. Its error is a
// *MetadataError about the first key that is wrong.
func ParseStamp(md metadata.MD) (fence.Stamp, error) {
	var (
		s   fence.Stamp
		err error
	)
	if s.Keyspace, err = name(md, KeyKeyspace); err != nil {
		return fence.Stamp{}, err
	}
	partition, err := number(md, KeyPartition, wantPartition, 0, 1<<32-1)
	if err != nil {
		return fence.Stamp{}, err
	}
	token, err := number(md, KeyToken, wantToken, 1, uint64(fence.MaxToken))
	if err != nil {
		return fence.Stamp{}, err
	}
	s.Partition, s.Token = uint32(partition), fence.Token(token)
	if s.Owner, err = name(md, KeyOwner); err != nil {
		return fence.Stamp{}, err
	}
	if len(md.Get(KeyResource))+len(md.Get(KeyResource+bin)) > 0 {
		if s.Resource, err = name(md, KeyResource); err != nil {
			return fence.Stamp{}, err
		}
	}
	return s, nil
}

func malformed(key, value, want string) *MetadataError {
	return &MetadataError{Key: key, Value: value[:min(len(value), 40)], Want: want}
}

func single(values []string, key, want string) (string, error) {
	switch len(values) {
	case 0:
		return "", &MetadataError{Key: key, Want: want, absent: true}
	case 1:
		return values[0], nil
	default:
		return "", malformed(key, strings.Join(values[:2], ", "), wantOne)
	}
}

func number(md metadata.MD, key, want string, low, high uint64) (uint64, error) {
	v, err := single(md.Get(key), key, want)
	if err != nil {
		return 0, err
	}
	n, ok := decimal(v)
	if !ok || n < low || n > high {
		return 0, malformed(key, v, want)
	}
	return n, nil
}

// decimal reads the only form in which a number is accepted: the one in which
// it is written. Every number has one spelling, so none is read as another.
func decimal(v string) (uint64, bool) {
	n, err := strconv.ParseUint(v, 10, 64)
	return n, err == nil && strconv.FormatUint(n, 10) == v
}

func name(md metadata.MD, key string) (string, error) {
	text, raw := md.Get(key), md.Get(key+bin)
	v, err := single(append(text[:len(text):len(text)], raw...), key, wantName)
	if err != nil {
		return "", err
	}
	if !nameOK(v) || len(text) == 1 && !visible(v) {
		return "", malformed(key, v, wantName)
	}
	return v, nil
}

func nameOK(s string) bool {
	return s != "" && len(s) <= MaxNameLen && utf8.ValidString(s) && !strings.Contains(s, "\x00")
}

// visible says whether a name may travel as text. A space at its ends would be
// lost on the way, and a comma is what proxies join repeated values with.
func visible(s string) bool {
	for i := range len(s) {
		if c := s[i]; c <= ' ' || c >= 0x7f || c == ',' {
			return false
		}
	}
	return true
}
