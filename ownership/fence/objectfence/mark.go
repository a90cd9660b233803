package objectfence

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	"github.com/leasehold-dev/leasehold/ownership/fence"
)

// Names of the metadata, after Config.MetaPrefix.
const (
	metaToken = "leasehold-token" // decimal digits
	metaOwner = "leasehold-owner" // %-escaped
	metaKey   = "leasehold-key"   // what the mark is of, %-escaped
	metaWrite = "leasehold-write" // the random id of the write
	metaEmpty = "leasehold-empty" // "1": claimed, nothing written yet
)

// ErrBadMark is matched by the error about an object whose metadata has a mark
// that this package cannot have written, or one of another key. Such an object
// is never written to: what it has seen is not known.
var ErrBadMark = errors.New("object has a fencing mark that is not ours")

// mark is the metadata of a guarded object. The zero mark is that of an object
// that has none, or does not exist.
type mark struct {
	fence.Mark
	key   string
	write string
	empty bool
}

func (m mark) set(h http.Header, prefix string) {
	h.Set(prefix+metaToken, m.Token.String())
	h.Set(prefix+metaOwner, url.QueryEscape(m.Owner))
	h.Set(prefix+metaKey, url.QueryEscape(m.key))
	h.Set(prefix+metaWrite, m.write)
	if m.empty {
		h.Set(prefix+metaEmpty, "1")
	}
}

func parseMark(h http.Header, prefix string) (mark, error) {
	token := h.Values(prefix + metaToken)
	if len(token) == 0 {
		for _, name := range []string{metaOwner, metaKey, metaWrite} {
			if v := h.Get(prefix + name); v != "" {
				return mark{}, fmt.Errorf("%w: %s%s is %.40q and %s%s is missing", ErrBadMark, prefix, name, v, prefix, metaToken)
			}
		}
		return mark{}, nil
	}
	n, err := strconv.ParseUint(token[0], 10, 64)
	if err != nil || len(token) > 1 || strconv.FormatUint(n, 10) != token[0] || n == 0 || fence.Token(n) > fence.MaxToken {
		return mark{}, fmt.Errorf("%w: %s%s is %.40q, want decimal digits, 1 to %d", ErrBadMark, prefix, metaToken, token, fence.MaxToken)
	}
	owner, err := url.QueryUnescape(h.Get(prefix + metaOwner))
	if err != nil || owner == "" {
		return mark{}, fmt.Errorf("%w: %s%s is %.40q, want an escaped worker id", ErrBadMark, prefix, metaOwner, h.Get(prefix+metaOwner))
	}
	key, err := url.QueryUnescape(h.Get(prefix + metaKey))
	if err != nil {
		return mark{}, fmt.Errorf("%w: %s%s is %.40q, want an escaped key", ErrBadMark, prefix, metaKey, h.Get(prefix+metaKey))
	}
	return mark{
		Mark:  fence.Mark{Token: fence.Token(n), Owner: owner},
		key:   key,
		write: h.Get(prefix + metaWrite),
		empty: h.Get(prefix+metaEmpty) == "1",
	}, nil
}
