package raftstore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/hashicorp/raft"

	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// Every connection between servers begins with a hello of the one that dialled
// and a welcome of the other, each a frame:
//
//	"LHR" | version, 1 byte | length of the body, 2 bytes, big endian | body
//
// A body is a row of fields: numbers as uvarints, strings with their length in
// front. A later version may append fields, which older ones skip; it changes
// none that is there.
const (
	helloMagic   = "LHR"
	helloVersion = 1
	helloHead    = len(helloMagic) + 3
	// maxHello bounds a body, maxHelloText a string in it.
	maxHello     = 4096
	maxHelloText = 1024
)

// errHello is what is wrong with bytes that are not a hello.
var errHello = errors.New("not the hello of a server")

// hello says who calls whom.
type hello struct {
	cluster  string        // empty: not known yet
	from, to raft.ServerID // to is whom the caller means to reach
	feature  state.Feature // the highest level that the caller knows
	version  string
}

// welcome is the answer to a hello.
type welcome struct {
	code    helloCode
	cluster string // of the one that answers
	self    raft.ServerID
	// index of the newest committed configuration, in which helloStranger did not
	// find the caller.
	index uint64
	text  string // what is wrong, for people
}

// helloCode is the outcome of a hello.
type helloCode uint64

const (
	helloOK       helloCode = iota
	helloStranger           // go on, but you are not in my configuration
	// With all others the connection ends.
	helloForeign // you belong to another cluster
	helloNotMe   // I am not whom you mean
	helloTooOld  // the cluster needs a newer server than you are
	helloDenied  // your certificate is not that of the server you say you are
)

func (h *hello) encode() []byte {
	b := appendText(nil, h.cluster)
	b = appendText(appendText(b, string(h.from)), string(h.to))
	b = binary.AppendUvarint(b, uint64(h.feature))
	return frame(appendText(b, h.version))
}

func (w *welcome) encode() []byte {
	b := binary.AppendUvarint(nil, uint64(w.code))
	b = appendText(appendText(b, w.cluster), string(w.self))
	b = binary.AppendUvarint(b, w.index)
	return frame(appendText(b, w.text))
}

func appendText(b []byte, s string) []byte {
	s = s[:min(len(s), maxHelloText)]
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func frame(body []byte) []byte {
	b := append([]byte(helloMagic), helloVersion)
	b = binary.BigEndian.AppendUint16(b, uint16(len(body)))
	return append(b, body...)
}

// readFrame reads exactly one frame and returns its body: what follows in the
// connection is Raft's.
func readFrame(r io.Reader) ([]byte, error) {
	var head [helloHead]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	n := int(binary.BigEndian.Uint16(head[helloHead-2:]))
	if string(head[:len(helloMagic)]) != helloMagic || head[len(helloMagic)] == 0 || n > maxHello {
		return nil, errHello
	}
	body := make([]byte, n)
	_, err := io.ReadFull(r, body)
	return body, err
}

func readHello(r io.Reader) (h hello, err error) {
	body, err := readFrame(r)
	if err != nil {
		return hello{}, err
	}
	f := helloFields{buf: body}
	h.cluster = f.text()
	h.from, h.to = raft.ServerID(f.text()), raft.ServerID(f.text())
	h.feature = state.Feature(min(f.number(), 1<<32-1))
	h.version = f.text()
	return h, f.err
}

func readWelcome(r io.Reader) (w welcome, err error) {
	body, err := readFrame(r)
	if err != nil {
		return welcome{}, err
	}
	f := helloFields{buf: body}
	w.code = helloCode(f.number())
	w.cluster = f.text()
	w.self = raft.ServerID(f.text())
	w.index = f.number()
	w.text = f.text()
	return w, f.err
}

// helloFields takes a body apart. After the first error all fields are zero.
type helloFields struct {
	buf []byte
	err error
}

func (f *helloFields) number() uint64 {
	v, n := binary.Uvarint(f.buf)
	if n <= 0 || f.err != nil {
		f.fail("a number is cut off")
		return 0
	}
	f.buf = f.buf[n:]
	return v
}

func (f *helloFields) text() string {
	n := f.number()
	if f.err != nil {
		return ""
	}
	if n > maxHelloText || n > uint64(len(f.buf)) {
		f.fail("a text is cut off")
		return ""
	}
	s := string(f.buf[:n])
	f.buf = f.buf[n:]
	// It will stand in logs and messages.
	if !utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
		f.fail("a text is not printable")
		return ""
	}
	return s
}

func (f *helloFields) fail(what string) {
	if f.err == nil {
		f.err = fmt.Errorf("%w: %s", errHello, what)
	}
	f.buf = nil
}
