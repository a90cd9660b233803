package auditlog

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/leasehold-dev/leasehold/raftstore/access"
)

// Entry is one call, or a refused attempt at one. It never has a secret: targets
// are names and ids, and no value or key of a user.
type Entry struct {
	Time     time.Time
	Identity access.Identity
	From     string // the address of the caller
	Method   string // as the API names it
	Target   string // what it is about: keyspace/partition, a worker, the id of a credential
	Outcome  string // "ok" or the reason why not
}

// What the log says of itself has one of these for a method. No API has such names.
const (
	methodSegment = "(segment)"  // the first line of each file
	methodStart   = "(start)"    // of the server
	methodStop    = "(stop)"     // in good order: what comes after none was a crash
	methodLost    = "(lost)"     // entries that could not be written
	methodLimited = "(left out)" // entries of unknown callers above their rate
	methodTorn    = "(torn)"     // an unfinished line that a start has cut off
	methodDamaged = "(damaged)"  // the line before is not as it was written
)

// maxField is how many bytes of each field are kept, maxLine a bound for what comes
// of that when every byte needs an escape.
const (
	maxField = 256
	maxLine  = 32 << 10
)

// timeFormat is RFC 3339 with milliseconds, in UTC.
const timeFormat = "2006-01-02T15:04:05.000Z"

// record is a line without its hash. The order of the fields is that of the file.
type record struct {
	Time    string `json:"time"`
	Server  string `json:"server"`
	Seq     uint64 `json:"seq"`
	Who     string `json:"who"`
	Source  string `json:"source,omitempty"` // how Who was proven
	Proof   string `json:"proof,omitempty"`  // the credential's id or the certificate's serial
	From    string `json:"from,omitempty"`
	Method  string `json:"method"`
	Target  string `json:"target,omitempty"`
	Outcome string `json:"outcome"`
	Prev    string `json:"prev"`
}

func (e *Entry) record() record {
	r := record{
		Time: e.Time.UTC().Format(timeFormat), Source: string(e.Identity.Source),
		From: clip(e.From), Method: clip(e.Method), Target: clip(e.Target), Outcome: clip(e.Outcome),
	}
	switch e.Identity.Source {
	case access.Certificate:
		r.Proof = clip(e.Identity.Serial)
	case access.Bearer:
		r.Proof = clip(e.Identity.Credential)
	}
	if r.Proof == "" {
		r.Who = e.Identity.String() // anybody or nobody
	} else {
		r.Who = clip(e.Identity.Role.String() + "/" + e.Identity.Name)
	}
	return r
}

// token is a credential as its holder presents it. None belongs here, and one that
// somebody took for a name comes along all the same.
var token = regexp.MustCompile(`(lhc_[a-z0-9]{1,12}_)[A-Za-z0-9_-]+`)

// clip shortens what somebody else has chosen the length of, and takes out secrets.
func clip(s string) string {
	s = token.ReplaceAllString(s, "${1}[redacted]")
	if len(s) <= maxField {
		return s
	}
	return strings.ToValidUTF8(s[:maxField], "\uFFFD") + "…"
}

// hashMark stands between a record and its hash; a line ends with hashTail bytes of
// which the hash is all but the mark, the quote and the brace.
const hashMark = `,"hash":"`

// lineStart is how a line begins.
const lineStart = `{"time":"`

const hashTail = len(hashMark) + 2*sha256.Size + len(`"}`)

// appendLine writes a record and its hash, and returns the hash. The hash is that of
// the line without it, so of the hash before as well.
func (r *record) appendLine(b []byte) ([]byte, string) {
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(r) // strings and a number: it cannot fail
	body := bytes.TrimSuffix(text.Bytes(), []byte("\n"))
	hash := hashOf(body)
	b = append(b, body[:len(body)-1]...)
	b = append(b, hashMark...)
	b = append(b, hash...)
	return append(b, "\"}\n"...), hash
}

func hashOf(body []byte) string {
	sum := sha256.Sum256(body)
	return hex.EncodeToString(sum[:])
}

// parseLine takes a line without its newline apart, and checks its hash.
func parseLine(line []byte) (r record, hash string, err error) {
	at := len(line) - hashTail
	if at < 1 || !bytes.HasPrefix(line[at:], []byte(hashMark)) || !bytes.HasSuffix(line, []byte(`"}`)) {
		return record{}, "", errors.New("is not a line of an audit log")
	}
	body := append(bytes.Clone(line[:at]), '}')
	hash = string(line[at+len(hashMark) : len(line)-len(`"}`)])
	if want := hashOf(body); hash != want {
		return record{}, "", fmt.Errorf("was changed: its hash is %s, and that of what it says is %s", short(hash), short(want))
	}
	if err := json.Unmarshal(body, &r); err != nil {
		return record{}, "", fmt.Errorf("cannot be read: %w", err)
	}
	return r, hash, nil
}

// short is enough of a hash to find it by.
func short(hash string) string {
	if len(hash) <= 12 {
		return fmt.Sprintf("%q", hash)
	}
	return fmt.Sprintf("%q", hash[:12]+"…")
}
