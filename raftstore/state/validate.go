package state

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// nameLimit is the alphabet in words. Slashes, spaces and everything that has
// two spellings stay out, so that a name reads the same in a URL, a metric
// label, a file and a gossip packet.
const nameLimit = "1 to 128 bytes of A-Z a-z 0-9 . _ - : and neither \".\" nor a name with \"..\""

// ValidateName checks a worker id, keyspace name, cluster id or server id.
// what and field say in the *Refusal what was being named.
func ValidateName(what, field, name string) error {
	ok := len(name) > 0 && len(name) <= MaxNameLen && name != "." && !strings.Contains(name, "..")
	for i := 0; ok && i < len(name); i++ {
		c := name[i]
		ok = c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' ||
			c == '.' || c == '_' || c == '-' || c == ':'
	}
	if !ok {
		return refuse(ReasonInvalid, what, field, name, nameLimit)
	}
	return nil
}

// validateText checks a free field: any printable UTF-8, also none.
func validateText(what, field, value string, limit int) error {
	ok := len(value) <= limit && utf8.ValidString(value) && !strings.ContainsFunc(value, unicode.IsControl)
	if !ok {
		return refuse(ReasonInvalid, what, field, value, fmt.Sprintf("at most %d bytes of UTF-8 without control characters", limit))
	}
	return nil
}

func validateLabels(what string, labels map[string]string) error {
	if len(labels) > MaxLabels {
		return refuse(ReasonInvalid, what, "labels", strconv.Itoa(len(labels)), fmt.Sprintf("at most %d labels", MaxLabels))
	}
	// The order of a map must not decide which fault is told: the least key's.
	for _, key := range sortedKeys(labels) {
		if key == "" {
			return refuse(ReasonInvalid, what, "labels", key, "a key that is not empty")
		}
		if err := validateText(what, "labels", key, MaxLabelLen); err != nil {
			return err
		}
		if err := validateText(what, "labels", labels[key], MaxLabelLen); err != nil {
			return err
		}
	}
	return nil
}

// DefaultSettings are those of a keyspace of which nothing else is said.
func DefaultSettings() Settings {
	return Settings{
		TTL:            10 * time.Second,
		Takeover:       Strict,
		HandoffTimeout: 30 * time.Second,
		InitialDelay:   time.Second,
	}
}

// Validate checks every setting against its absolute limits. The server's own
// floor for TTL, six election timeouts, is enforced where that is known.
func (t Settings) Validate() error {
	const what = "keyspace"
	if t.TTL < MinTTL || t.TTL > MaxTTL {
		return refuse(ReasonInvalid, what, "ttl", t.TTL.String(), fmt.Sprintf("%s to %s", MinTTL, MaxTTL))
	}
	if t.Takeover != Strict && t.Takeover != Fenced {
		return refuse(ReasonInvalid, what, "takeover", strconv.Itoa(int(t.Takeover)), "strict or fenced")
	}
	for _, f := range []struct {
		field string
		value time.Duration
		max   time.Duration
	}{
		{"ttl", t.TTL, MaxTTL},
		{"handoff_timeout", t.HandoffTimeout, MaxHandoffTimeout},
		{"restart_grace", t.RestartGrace, MaxRestartGrace},
		{"initial_delay", t.InitialDelay, MaxInitialDelay},
	} {
		if f.value < 0 || f.value > f.max {
			return refuse(ReasonInvalid, what, f.field, f.value.String(), fmt.Sprintf("0 to %s", f.max))
		}
		// The wire and the workers count in milliseconds: a fraction would be
		// one number here and another there.
		if f.value%time.Millisecond != 0 {
			return refuse(ReasonInvalid, what, f.field, f.value.String(), "whole milliseconds")
		}
	}
	return nil
}

// shorten cuts a text to n bytes without splitting a character.
func shorten(text string, n int) string {
	if len(text) <= n {
		return text
	}
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n]
}

// refuse builds the usual refusal.
func refuse(reason Reason, what, field, value, limit string) *Refusal {
	return &Refusal{Reason: reason, What: what, Field: field, Value: shorten(value, 64), Limit: limit}
}

// printable makes a text from outside fit for a terminal and a log: what is
// not valid UTF-8 or is a control character becomes a space.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r == utf8.RuneError || unicode.IsControl(r) {
			return ' '
		}
		return r
	}, text)
}
