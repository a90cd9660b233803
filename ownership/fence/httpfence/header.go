package httpfence

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/leasehold-dev/leasehold/ownership/fence"
)

// Headers of a request that carries a stamp.
const (
	HeaderKeyspace  = "Leasehold-Keyspace"
	HeaderPartition = "Leasehold-Partition"
	HeaderToken     = "Leasehold-Token"
	HeaderOwner     = "Leasehold-Owner"
	HeaderResource  = "Leasehold-Resource" // absent unless the stamp names a resource
)

// Headers of a refusal.
const (
	HeaderRefused      = "Leasehold-Refused"       // the reason, one word
	HeaderCurrentToken = "Leasehold-Current-Token" // of a 409: the highest token seen
	HeaderCurrentOwner = "Leasehold-Current-Owner" // of a 409: and whose it was
)

// MaxNameLen is the longest keyspace, owner or resource, in bytes before they
// are escaped.
const MaxNameLen = 255

// ErrMissing is matched by the error about a request without a stamp, or with
// a part of one.
var ErrMissing = errors.New("fencing stamp is missing")

// HeaderError says which header of a stamp is not as it has to be, and why. It
// matches ErrMissing if the header is absent, otherwise fence.ErrInvalid.
type HeaderError struct {
	Header string // its name
	Value  string // what came, cut to 40 bytes; empty if it is absent
	Want   string // what is allowed
	absent bool
}

// Error names the header, the value and the limit.
func (e *HeaderError) Error() string {
	if e.absent {
		return fmt.Sprintf("header %s is missing: want %s", e.Header, e.Want)
	}
	return fmt.Sprintf("header %s: %q: want %s", e.Header, e.Value, e.Want)
}

// Is matches ErrMissing or fence.ErrInvalid.
func (e *HeaderError) Is(target error) bool {
	if e.absent {
		return target == ErrMissing
	}
	return target == fence.ErrInvalid
}

const (
	wantOne       = "exactly one value"
	wantName      = "1 to 255 bytes of UTF-8 without NUL, written as visible ASCII and %XX"
	wantPartition = "decimal digits, 0 to 4294967295, without sign, space or leading zero"
	wantToken     = "decimal digits, 1 to 9007199254740991, without sign, space or leading zero"
)

// SetStamp writes the stamp into the headers of a request, replacing what is
// there. It fails, with fence.ErrInvalid, on a stamp that ParseStamp would
// refuse.
func SetStamp(h http.Header, s fence.Stamp) error {
	if err := validate(s); err != nil {
		return err
	}
	h.Set(HeaderKeyspace, escape(s.Keyspace))
	h.Set(HeaderPartition, strconv.FormatUint(uint64(s.Partition), 10))
	h.Set(HeaderToken, s.Token.String())
	h.Set(HeaderOwner, escape(s.Owner))
	h.Del(HeaderResource)
	if s.Resource != "" {
		h.Set(HeaderResource, escape(s.Resource))
	}
	return nil
}

// ParseStamp reads a stamp from the headers of a request. Its error is a
// *HeaderError about the first header that is wrong.
func ParseStamp(h http.Header) (fence.Stamp, error) {
	var (
		s   fence.Stamp
		err error
	)
	if s.Keyspace, err = name(h, HeaderKeyspace); err != nil {
		return fence.Stamp{}, err
	}
	partition, err := number(h, HeaderPartition, wantPartition, 0, 1<<32-1)
	if err != nil {
		return fence.Stamp{}, err
	}
	token, err := number(h, HeaderToken, wantToken, 1, uint64(fence.MaxToken))
	if err != nil {
		return fence.Stamp{}, err
	}
	s.Partition, s.Token = uint32(partition), fence.Token(token)
	if s.Owner, err = name(h, HeaderOwner); err != nil {
		return fence.Stamp{}, err
	}
	if len(h.Values(HeaderResource)) > 0 {
		if s.Resource, err = name(h, HeaderResource); err != nil {
			return fence.Stamp{}, err
		}
	}
	return s, nil
}

// validate is what the wire asks for beyond Stamp.Validate.
func validate(s fence.Stamp) error {
	if err := s.Validate(); err != nil {
		return err
	}
	for _, f := range []struct{ name, value string }{{"keyspace", s.Keyspace}, {"owner", s.Owner}} {
		if !nameOK(f.value) {
			return fmt.Errorf("%w: %s %.40q with %d bytes: want 1 to %d bytes of UTF-8 without NUL", fence.ErrInvalid, f.name, f.value, len(f.value), MaxNameLen)
		}
	}
	return nil
}

func nameOK(s string) bool {
	return s != "" && len(s) <= MaxNameLen && utf8.ValidString(s) && !strings.Contains(s, "\x00")
}

func malformed(header, value, want string) *HeaderError {
	return &HeaderError{Header: header, Value: value[:min(len(value), 40)], Want: want}
}

func single(h http.Header, header, want string) (string, error) {
	switch v := h.Values(header); len(v) {
	case 0:
		return "", &HeaderError{Header: header, Want: want, absent: true}
	case 1:
		return v[0], nil
	default:
		return "", malformed(header, strings.Join(v[:2], ", "), wantOne)
	}
}

func number(h http.Header, header, want string, low, high uint64) (uint64, error) {
	v, err := single(h, header, want)
	if err != nil {
		return 0, err
	}
	n, ok := decimal(v)
	if !ok || n < low || n > high {
		return 0, malformed(header, v, want)
	}
	return n, nil
}

// decimal reads the only form in which a number is accepted: the one in which
// it is written. Every number has one spelling, so none is read as another.
func decimal(v string) (uint64, bool) {
	n, err := strconv.ParseUint(v, 10, 64)
	return n, err == nil && strconv.FormatUint(n, 10) == v
}

func name(h http.Header, header string) (string, error) {
	v, err := single(h, header, wantName)
	if err != nil {
		return "", err
	}
	s, ok := unescape(v)
	if !ok || !nameOK(s) {
		return "", malformed(header, v, wantName)
	}
	return s, nil
}

// literal says whether a byte of a name stands for itself in a header. A comma
// does not: proxies join repeated headers with it.
func literal(c byte) bool {
	return c > ' ' && c < 0x7f && c != '%' && c != ',' && c != '"'
}

func escape(s string) string {
	var b strings.Builder
	for i := range len(s) {
		if c := s[i]; literal(c) {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

func unescape(v string) (string, bool) {
	if len(v) > 3*MaxNameLen {
		return "", false
	}
	var b strings.Builder
	for i := 0; i < len(v); i++ {
		c := v[i]
		if c == '%' {
			if i+2 >= len(v) {
				return "", false
			}
			n, err := strconv.ParseUint(v[i+1:i+3], 16, 8)
			if err != nil {
				return "", false
			}
			b.WriteByte(byte(n))
			i += 2
			continue
		}
		if !literal(c) {
			return "", false
		}
		b.WriteByte(c)
	}
	return b.String(), true
}
