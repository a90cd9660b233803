package raftstore

import (
	"errors"
	"fmt"
)

// Bounds of one request between servers. The largest that a server sends has one
// log entry of a few MiB; a snapshot follows its request as bare bytes, which go to
// disk and are not bounded here.
const (
	maxFrame       = 64 << 20
	maxFrameValues = 1 << 16 // of any kind; maxAppendEntries entries have 16 each
	maxFrameDepth  = 8
)

// What begins a request, in Raft's transport.
const (
	kindInstallSnapshot = 2
	kindLast            = 4
)

// errFrame is what is wrong with a request that Raft does not get to see.
var errFrame = errors.New("not a request that a server would make")

// inflow follows the requests on an accepted connection before Raft decodes them:
// one byte for the kind, a map in MessagePack, for a snapshot as many bytes as its
// field Size says, and nothing more until the answer. What is too large, or comes
// before it is its turn, is refused when it is announced, not when it has filled
// the memory. It allocates nothing.
type inflow struct {
	stage  inflowStage
	kind   byte
	bytes  int // of the request so far, the snapshot not counted
	values int // so far

	skip uint64  // bytes of a text, or of the snapshot, that are still to come
	head [9]byte // of the value that comes next
	have int     // bytes of head
	want int     // bytes of head, once its first is known

	depth int // of maps and arrays that are open
	open  [maxFrameDepth]struct {
		left uint64 // values still to come
		keys bool   // a map: every other value is a key
	}
	text     int     // how much of the key is in name; -1: too long, or no key
	name     [4]byte // the key being read, at the first level
	isSize   bool    // the value that comes next is that of Size
	sizeSeen bool
	size     uint64 // of the snapshot
}

type inflowStage uint8

const (
	inflowKind inflowStage = iota
	inflowValue
	inflowSnapshot
	inflowAnswer
)

// scan looks at bytes that have arrived.
func (f *inflow) scan(b []byte) error {
	for len(b) > 0 {
		n, err := 0, error(nil)
		switch {
		case f.skip > 0:
			n = int(min(f.skip, uint64(len(b))))
			f.keep(b[:n])
			if f.skip -= uint64(n); f.skip == 0 {
				f.skipped()
			}
		case f.stage == inflowKind:
			n, err = 1, f.begin(b[0])
		case f.stage == inflowValue:
			n, err = f.value(b)
		default:
			err = fmt.Errorf("%w: it goes on before it is answered", errFrame)
		}
		if err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

// answered is called when an answer is written: another request may come.
func (f *inflow) answered() {
	if f.stage == inflowAnswer {
		f.stage = inflowKind
	}
}

func (f *inflow) begin(kind byte) error {
	if kind > kindLast {
		return fmt.Errorf("%w: of kind %d", errFrame, kind)
	}
	*f = inflow{stage: inflowValue, kind: kind, bytes: 1}
	return nil
}

// keep notes a key of the first level.
func (f *inflow) keep(b []byte) {
	if f.stage != inflowValue || f.text < 0 {
		return
	}
	if f.text+len(b) > len(f.name) {
		f.text = -1
		return
	}
	f.text += copy(f.name[f.text:], b)
}

// skipped ends a text, or the snapshot.
func (f *inflow) skipped() {
	if f.stage == inflowSnapshot {
		f.stage = inflowAnswer
		return
	}
	f.ended()
}

// value takes bytes of the head of a value, and what it announces.
func (f *inflow) value(b []byte) (n int, err error) {
	if f.have == 0 {
		f.want = headLen(b[0])
	}
	n = copy(f.head[f.have:f.want], b)
	f.have += n
	if f.have < f.want {
		return n, nil
	}
	f.have = 0
	f.bytes += f.want
	if f.values++; f.values > maxFrameValues {
		return n, fmt.Errorf("%w: more than %d values", errFrame, maxFrameValues)
	}
	return n, f.announced(f.head[0], number(f.head[1:f.want]))
}

// announced looks at the head of a value: its first byte, and the number behind.
func (f *inflow) announced(c byte, n uint64) error {
	isMap := c >= 0x80 && c <= 0x8f || c == 0xde || c == 0xdf
	if f.depth == 0 && !isMap {
		return fmt.Errorf("%w: it is no map", errFrame)
	}
	if f.isSize {
		f.isSize = false
		size, ok := integer(c, n)
		if !ok || f.sizeSeen {
			return fmt.Errorf("%w: its Size is no number, or there twice", errFrame)
		}
		f.size, f.sizeSeen = size, true
	}
	switch {
	case isMap:
		if c <= 0x8f {
			n = uint64(c & 0x0f)
		}
		return f.push(2*n, true)
	case c >= 0x90 && c <= 0x9f:
		return f.push(uint64(c&0x0f), false)
	case c == 0xdc, c == 0xdd:
		return f.push(n, false)
	case c >= 0xa0 && c <= 0xbf:
		return f.pass(uint64(c & 0x1f))
	case c >= 0xc4 && c <= 0xc6, c >= 0xd9 && c <= 0xdb:
		return f.pass(n)
	case c >= 0xc7 && c <= 0xc9:
		return f.pass(n + 1) // a byte for the type
	case c >= 0xd4 && c <= 0xd8:
		return f.pass(1<<(c-0xd4) + 1)
	case c == 0xc1:
		return fmt.Errorf("%w: a byte that means nothing", errFrame)
	}
	f.ended()
	return nil
}

// push opens a map or an array.
func (f *inflow) push(values uint64, keys bool) error {
	if f.depth == maxFrameDepth || values > 2*maxFrameValues {
		return fmt.Errorf("%w: %d values, %d deep", errFrame, values, f.depth+1)
	}
	f.open[f.depth].left, f.open[f.depth].keys = values, keys
	f.depth++
	f.closed()
	return nil
}

// pass skips the bytes of a text.
func (f *inflow) pass(n uint64) error {
	if n > maxFrame || f.bytes+int(n) > maxFrame {
		return fmt.Errorf("%w: %d bytes and more, at most %d", errFrame, uint64(f.bytes)+n, maxFrame)
	}
	f.bytes += int(n)
	f.skip, f.text = n, -1
	if f.depth == 1 && f.isKey() {
		f.text = 0
	}
	if n == 0 {
		f.ended()
	}
	return nil
}

// isKey reports whether the value being read is the key of a map.
func (f *inflow) isKey() bool {
	o := f.open[f.depth-1]
	return o.keys && o.left%2 == 0
}

// ended closes a value, and the maps and arrays that end with it.
func (f *inflow) ended() {
	f.isSize = f.depth == 1 && f.isKey() && f.text == len(f.name) && string(f.name[:]) == "Size"
	f.text = -1
	f.open[f.depth-1].left--
	f.closed()
}

func (f *inflow) closed() {
	for f.depth > 0 && f.open[f.depth-1].left == 0 {
		if f.depth--; f.depth > 0 {
			f.open[f.depth-1].left--
		}
	}
	if f.depth > 0 {
		return
	}
	f.stage = inflowAnswer
	if f.kind == kindInstallSnapshot && f.size > 0 {
		f.stage, f.skip = inflowSnapshot, f.size
	}
}

// headLen is how many bytes the head of a value has.
func headLen(c byte) int {
	switch c {
	case 0xc4, 0xc7, 0xcc, 0xd0, 0xd9:
		return 2
	case 0xc5, 0xc8, 0xcd, 0xd1, 0xda, 0xdc, 0xde:
		return 3
	case 0xc6, 0xc9, 0xca, 0xce, 0xd2, 0xdb, 0xdd, 0xdf:
		return 5
	case 0xcb, 0xcf, 0xd3:
		return 9
	}
	return 1
}

// number reads what stands behind the first byte, as big endian.
func number(b []byte) uint64 {
	n := uint64(0)
	for _, c := range b {
		n = n<<8 | uint64(c)
	}
	return n
}

// integer is what a value says if it is a number; a negative one is 0.
func integer(c byte, n uint64) (uint64, bool) {
	switch {
	case c <= 0x7f:
		return uint64(c), true
	case c >= 0xe0:
		return 0, true
	case c >= 0xcc && c <= 0xcf:
		return n, n < 1<<63
	case c >= 0xd0 && c <= 0xd3:
		bits := 8 << (c - 0xd0)
		return n, n < 1<<(bits-1) // a negative size is none
	}
	return 0, false
}
