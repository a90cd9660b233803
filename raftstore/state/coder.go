package state

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// errMalformed is what every fault of an encoding is, beside the typed ones.
var errMalformed = errors.New("malformed encoding")

// coder reads or writes, by the same code, so that the two cannot differ. A
// field is passed by pointer: writing appends it to buf and leaves it alone,
// so that others may read it meanwhile; reading takes it from the front of buf. The first fault of a read sticks and leaves buf
// empty, so that later reads end at once.
type coder struct {
	buf     []byte
	reading bool
	err     error
}

func (c *coder) fail(what string) {
	if c.err == nil {
		c.err = fmt.Errorf("%w: %s", errMalformed, what)
	}
	c.buf = nil
}

func (c *coder) uvarint(v *uint64) {
	if !c.reading {
		c.buf = binary.AppendUvarint(c.buf, *v)
		return
	}
	x, n := binary.Uvarint(c.buf)
	if n <= 0 {
		c.fail("number")
		return
	}
	*v, c.buf = x, c.buf[n:]
}

func (c *coder) varint(v *int64) {
	u := uint64(*v<<1) ^ uint64(*v>>63)
	if c.uvarint(&u); c.reading {
		*v = int64(u>>1) ^ -int64(u&1)
	}
}

// number codes any unsigned kind and refuses what does not fit.
func number[T ~uint8 | ~uint16 | ~uint32 | ~uint64](c *coder, v *T) {
	u := uint64(*v)
	if c.uvarint(&u); c.reading {
		if *v = T(u); uint64(*v) != u {
			c.fail("number out of range")
		}
	}
}

// count codes a count that is an int in memory.
func count(c *coder, v *int) {
	u := uint64(*v)
	if c.uvarint(&u); !c.reading {
		return
	}
	if u > math.MaxInt32 {
		c.fail("count out of range")
		u = 0
	}
	*v = int(u)
}

// signed codes a duration.
func signed[T ~int64](c *coder, v *T) {
	i := int64(*v)
	if c.varint(&i); c.reading {
		*v = T(i)
	}
}

func (c *coder) flag(v *bool) {
	var b uint8
	if *v {
		b = 1
	}
	if number(c, &b); c.reading {
		if b > 1 {
			c.fail("flag")
		}
		*v = b == 1
	}
}

// text codes a string. The copy costs no more than the input had.
func text[T ~string](c *coder, v *T) {
	n := uint64(len(*v))
	c.uvarint(&n)
	if !c.reading {
		c.buf = append(c.buf, *v...)
		return
	}
	if n > uint64(len(c.buf)) {
		c.fail("text is cut off")
		return
	}
	*v, c.buf = T(c.buf[:n]), c.buf[n:]
}

// fixed codes 8 bytes: for random numbers, which a varint would lengthen.
func fixed[T ~uint64](c *coder, v *T) {
	if !c.reading {
		c.buf = binary.LittleEndian.AppendUint64(c.buf, uint64(*v))
		return
	}
	if len(c.buf) < 8 {
		c.fail("number is cut off")
		return
	}
	*v, c.buf = T(binary.LittleEndian.Uint64(c.buf)), c.buf[8:]
}

// length codes how many elements follow, each of at least size bytes, and so
// never lets a reader allocate for more than there can be.
func (c *coder) length(n, size int) int {
	u := uint64(n)
	c.uvarint(&u)
	if c.reading && u > uint64(len(c.buf)/size) {
		c.fail("list is cut off")
		return 0
	}
	return int(u)
}

// list codes a slice whose elements take at least size bytes each. An empty
// one reads back as nil.
func list[T any](c *coder, v *[]T, size int, element func(*coder, *T)) {
	n := c.length(len(*v), size)
	if c.reading {
		*v = nil
		if n > 0 {
			*v = make([]T, n)
		}
	}
	for i := range *v {
		if c.err != nil {
			return
		}
		element(c, &(*v)[i])
	}
}

// labels codes a map in the order of its keys.
func (c *coder) labels(v *map[string]string) {
	n := c.length(len(*v), 2)
	if !c.reading {
		for _, key := range sortedKeys(*v) {
			value := (*v)[key]
			text(c, &key)
			text(c, &value)
		}
		return
	}
	*v = nil
	if n > 0 {
		*v = make(map[string]string, n)
	}
	last := ""
	for i := range n {
		var key, value string
		text(c, &key)
		text(c, &value)
		if c.err == nil && i > 0 && key <= last {
			c.fail("labels are not in order")
		}
		if c.err != nil {
			return
		}
		(*v)[key], last = value, key
	}
}

// delta codes a number as its difference to the one before it.
func delta[T ~uint32 | ~uint64](c *coder, v *T, last *T) {
	d := int64(uint64(*v) - uint64(*last))
	if c.varint(&d); c.reading {
		u := uint64(*last) + uint64(d)
		if *v = T(u); uint64(*v) != u {
			c.fail("number out of range")
		}
	}
	*last = *v
}

// done is the fault of a read, also that something was left over.
func (c *coder) done() error {
	if c.err == nil && c.reading && len(c.buf) > 0 {
		c.fail("bytes left over")
	}
	return c.err
}
