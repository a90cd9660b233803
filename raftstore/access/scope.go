package access

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Limits of a Scope.
const (
	MaxPatterns   = 32   // keyspace patterns, and as many key prefixes
	MaxPatternLen = 129  // bytes of a keyspace pattern: a name and a star
	MaxPrefixLen  = 1024 // bytes of a key prefix
)

// Scope is where somebody may do what their role allows. The zero Scope is
// nowhere. Treat it as read-only once it is in use.
type Scope struct {
	// Keyspaces are names, or beginnings of names followed by a star: "orders",
	// "pay-*", "*".
	Keyspaces []string
	// Prefixes are beginnings of keys of the coordination API. The empty one is
	// that of all keys.
	Prefixes []string
}

// Everywhere has no bounds.
func Everywhere() Scope { return Scope{Keyspaces: []string{"*"}, Prefixes: []string{""}} }

// ScopeOf is the scope that lists of patterns and prefixes mean: who names
// neither means everywhere, who names one of them means nothing of the other.
func ScopeOf(keyspaces, prefixes []string) Scope {
	if len(keyspaces) == 0 && len(prefixes) == 0 {
		return Everywhere()
	}
	return Scope{Keyspaces: slices.Clone(keyspaces), Prefixes: slices.Clone(prefixes)}
}

// Validate says everything that is wrong, naming the value and the limit.
func (s Scope) Validate() error {
	var errs []error
	if n := len(s.Keyspaces); n > MaxPatterns {
		errs = append(errs, fmt.Errorf("keyspaces: %d patterns: at most %d", n, MaxPatterns))
	}
	if n := len(s.Prefixes); n > MaxPatterns {
		errs = append(errs, fmt.Errorf("key_prefixes: %d prefixes: at most %d", n, MaxPatterns))
	}
	for _, p := range s.Keyspaces {
		if err := checkPattern(p); err != nil {
			errs = append(errs, err)
		}
	}
	for _, p := range s.Prefixes {
		if len(p) > MaxPrefixLen {
			errs = append(errs, fmt.Errorf("key_prefixes: a prefix of %d bytes: at most %d", len(p), MaxPrefixLen))
		}
	}
	return errors.Join(errs...)
}

func checkPattern(p string) error {
	const want = "want a keyspace's name, a beginning of names and a star, or a star"
	if p == "" || len(p) > MaxPatternLen {
		return fmt.Errorf("keyspaces %q: %d bytes: 1 to %d; %s", clip(p), len(p), MaxPatternLen, want)
	}
	for i, r := range p {
		ok := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("._-:", r)
		if !ok && (r != '*' || i != len(p)-1) {
			return fmt.Errorf("keyspaces %q: character %q: %s", clip(p), r, want)
		}
	}
	return nil
}

// Keyspace reports whether the scope has the keyspace of that name.
func (s Scope) Keyspace(name string) bool {
	return name != "" && slices.ContainsFunc(s.Keyspaces, func(p string) bool { return matches(p, name) })
}

// AllKeyspaces reports whether it has every keyspace, also those to come.
func (s Scope) AllKeyspaces() bool { return slices.Contains(s.Keyspaces, "*") }

// AllKeys reports whether it has every key.
func (s Scope) AllKeys() bool { return slices.Contains(s.Prefixes, "") }

// Key reports whether the scope has one key.
func (s Scope) Key(key []byte) bool {
	return slices.ContainsFunc(s.Prefixes, func(p string) bool { return len(key) >= len(p) && string(key[:len(p)]) == p })
}

// Range reports whether the scope has all keys from key on and before end, as a
// range of the key store stands after it has been normalised: a nil end has no
// bound. The range must lie under one prefix; an empty one is where its key is.
func (s Scope) Range(key, end []byte) bool {
	return slices.ContainsFunc(s.Prefixes, func(p string) bool {
		if len(key) < len(p) || string(key[:len(p)]) != p {
			return false
		}
		last := After([]byte(p))
		return last == nil || end != nil && bytes.Compare(end, last) <= 0
	})
}

// After is the first key behind all that begin with prefix; nil: there is none.
func After(prefix []byte) []byte {
	for i := len(prefix) - 1; i >= 0; i-- {
		if prefix[i] < 0xff {
			end := slices.Clone(prefix[:i+1])
			end[i]++
			return end
		}
	}
	return nil
}

// Within reports whether all of s lies in outer.
func (s Scope) Within(outer Scope) bool {
	for _, p := range s.Keyspaces {
		covered := slices.ContainsFunc(outer.Keyspaces, func(q string) bool {
			return p == q || strings.HasSuffix(q, "*") && strings.HasPrefix(p, strings.TrimSuffix(q, "*"))
		})
		if !covered {
			return false
		}
	}
	for _, p := range s.Prefixes {
		if !slices.ContainsFunc(outer.Prefixes, func(q string) bool { return strings.HasPrefix(p, q) }) {
			return false
		}
	}
	return true
}

func matches(pattern, name string) bool {
	if begin, star := strings.CutSuffix(pattern, "*"); star {
		return strings.HasPrefix(name, begin)
	}
	return pattern == name
}
