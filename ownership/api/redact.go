package api

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"regexp"
	"slices"
	"strings"
)

// redacted stands in a debug archive for what must not leave the machine.
const redacted = "[redacted]"

// MinSecret is the length below which a secret is not looked for in a debug
// archive: so short a text stands in it by chance.
const MinSecret = 6

var (
	// secretName are the words in a name that make its value a secret.
	secretName = regexp.MustCompile(`(?i)passw(or)?d|passphrase|secret|credential|private[_-]?key|api[_-]?key|access[_-]?key|gossip[_-]?key$|authorization|bearer|cookie`)
	// secretPair is such a name with its value, in JSON, logfmt or a command line.
	secretPair = regexp.MustCompile(`(?i)("?[a-z0-9_.-]*(?:passw(?:or)?d|passphrase|secret|credential|private[_-]?key|api[_-]?key|access[_-]?key|authorization|bearer)[a-z0-9_.-]*"?\s*[:=]\s*)("(?:[^"\\]|\\.)*"|[^\s,}\]"]+)`)
	// bearer is a credential as HTTP and gRPC carry it.
	bearer = regexp.MustCompile(`(?i)\b(bearer|basic)\s+[a-z0-9._~+/-]{6,}=*`)
	// credentialToken is what the holder of a credential presents.
	credentialToken = regexp.MustCompile(`lhc_[a-z0-9]{12}_[A-Za-z0-9_-]{43}`)
	// userInfo is name and password in a URL.
	userInfo = regexp.MustCompile(`([a-zA-Z][a-zA-Z0-9+.-]*://)[^\s/@"']+:[^\s/@"']+@`)
)

// IsSecretName tells whether a value that a user has put under the name, a
// label or a variable of the environment, should not leave the machine. Token
// is such a name there; in our own messages it is the fencing token.
func IsSecretName(name string) bool {
	lower := strings.ToLower(name)
	return secretName.MatchString(name) || lower == "token" || lower == "key" || strings.HasSuffix(lower, "_token") || strings.HasSuffix(lower, "_key")
}

// redactor takes secrets out of text, four times over: the known ones by their
// bytes in every usual encoding, pairs whose name says it, tokens of credentials and
// passwords in URLs.
type redactor struct{ known [][]byte }

func newRedactor(secrets []string) *redactor {
	r := &redactor{}
	for _, s := range secrets {
		if len(s) < MinSecret {
			continue
		}
		for _, form := range []string{s, base64.StdEncoding.EncodeToString([]byte(s)), base64.URLEncoding.EncodeToString([]byte(s)), hex.EncodeToString([]byte(s))} {
			r.known = append(r.known, []byte(form), []byte(strings.TrimRight(form, "=")))
		}
	}
	// The longest first: a part that was replaced would hide the whole.
	slices.SortFunc(r.known, func(a, b []byte) int { return len(b) - len(a) })
	return r
}

// cleanKnown takes out the known secrets alone, for text in which names mean
// nothing: credentials.go:17 in a stack is no password.
func (r *redactor) cleanKnown(text []byte) (out []byte, replaced int) {
	for _, s := range r.known {
		if n := bytes.Count(text, s); n > 0 {
			replaced += n
			text = bytes.ReplaceAll(text, s, []byte(redacted))
		}
	}
	return text, replaced
}

// clean returns the text without secrets, and how many were replaced.
func (r *redactor) clean(text []byte) (out []byte, replaced int) {
	text, replaced = r.cleanKnown(text)
	if n := len(credentialToken.FindAllIndex(text, -1)); n > 0 {
		replaced += n
		text = credentialToken.ReplaceAllLiteral(text, []byte(redacted))
	}
	// Before the pairs: "authorization: bearer x" is a pair with two words.
	if n := len(bearer.FindAllIndex(text, -1)); n > 0 {
		replaced += n
		text = bearer.ReplaceAll(text, []byte("${1} "+redacted))
	}
	text = secretPair.ReplaceAllFunc(text, func(pair []byte) []byte {
		m := secretPair.FindSubmatch(pair)
		name, value := m[1], m[2]
		if bytes.Contains(value, []byte(strings.TrimSuffix(redacted, "]"))) {
			return pair
		}
		replaced++
		if value[0] == '"' {
			return slices.Concat(name, []byte(`"`+redacted+`"`))
		}
		return slices.Concat(name, []byte(redacted))
	})
	if n := len(userInfo.FindAllIndex(text, -1)); n > 0 {
		replaced += n
		text = userInfo.ReplaceAll(text, []byte("${1}"+redacted+"@"))
	}
	return text, replaced
}
