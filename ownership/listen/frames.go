package listen

import (
	"encoding/binary"
	"errors"
	"net"
	"time"

	"golang.org/x/time/rate"
)

// clientPreface comes before a client's first HTTP/2 frame.
const clientPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

// What is looked at of HTTP/2 (RFC 9113).
const (
	frameHead     = 9 // length, 3 bytes; type; flags; stream, 4 bytes
	frameReset    = 3
	resetLen      = 4 // bytes of a reset: a code
	refusedStream = 7 // a code
)

// errResets ends a connection that opens streams only to reset them: each costs
// the server the work of a call, and the client nothing.
var errResets = errors.New("the client resets streams faster than any client has reason to")

// watched is a connection of HTTP/2 whose frames are looked at on their way: how
// often the client resets a stream, and how often gRPC refuses one because there
// are too many; and how much a stranger says. One goroutine reads and one writes.
type watched struct {
	net.Conn
	metrics Observer
	resets  *rate.Limiter // nil: not bounded
	under   *conn         // nil: plain
	heard   int           // bytes, of a stranger
	in, out frames
}

func (w *watched) Read(b []byte) (int, error) {
	n, err := w.Conn.Read(b)
	if w.under != nil && w.under.stranger.Load() {
		if w.heard += n; w.heard > strangerBytes {
			w.metrics.LimitHit("strangers")
			_ = w.Conn.Close()
			return 0, errStranger
		}
	}
	resets := 0
	w.in.scan(b[:n], func(uint32) { resets++ })
	if resets > 0 && w.resets != nil && !w.resets.AllowN(time.Now(), resets) {
		w.metrics.LimitHit("resets")
		_ = w.Conn.Close()
		return 0, errResets
	}
	return n, err
}

func (w *watched) Write(b []byte) (int, error) {
	w.out.scan(b, func(code uint32) { // before the client can know
		if code == refusedStream {
			w.metrics.LimitHit("streams")
		}
	})
	return w.Conn.Write(b)
}

// frames finds the frames in a stream of bytes that arrives in any pieces.
type frames struct {
	skip int                        // bytes that are of no interest
	head [frameHead + resetLen]byte // of the frame that follows them
	have int                        // bytes of head
}

// scan calls reset with the code of each reset that ends in b.
func (f *frames) scan(b []byte, reset func(code uint32)) {
	for len(b) > 0 {
		if f.skip > 0 {
			n := min(f.skip, len(b))
			f.skip -= n
			b = b[n:]
			continue
		}
		want := frameHead
		if f.have >= frameHead { // a reset
			want = len(f.head)
		}
		n := copy(f.head[f.have:want], b)
		f.have += n
		b = b[n:]
		if f.have < want {
			return
		}
		if want == len(f.head) {
			reset(binary.BigEndian.Uint32(f.head[frameHead:]))
			f.have = 0
			continue
		}
		size := int(f.head[0])<<16 | int(f.head[1])<<8 | int(f.head[2])
		if f.head[3] == frameReset && size == resetLen {
			continue
		}
		f.have, f.skip = 0, size
	}
}
