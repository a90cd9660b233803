package attack

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"slices"

	"golang.org/x/net/http2"
)

// Parts of gossip's frames, see ring/gossip.
const (
	labelByte         = 244
	encryptByte       = 10
	encryptionVersion = 1
)

// frame is a gossip message that says that it is encrypted and how long it is.
func frame(label string, size uint32) []byte {
	b := append([]byte{labelByte, byte(len(label))}, label...)
	b = binary.BigEndian.AppendUint32(append(b, encryptByte), size)
	return append(b, encryptionVersion)
}

// sizes are things that are too large, or say that they will be.
func sizes(cfg Config) []trouble {
	chunk := make([]byte, 16<<10)
	// Calls whose messages are never done: what has come of them is held.
	unended := func(method string) func(h *h2) error {
		return func(h *h2) error {
			if err := h.open(method); err != nil {
				return err
			}
			if err := h.WriteData(h.stream, false, message(5<<20)); err != nil {
				return err
			}
			return h.WriteData(h.stream, false, chunk)
		}
	}
	huge := func(h *h2) error {
		if err := h.open(methodStatus); err != nil {
			return err
		}
		if err := h.WriteData(h.stream, false, message(1<<30)); err != nil {
			return err
		}
		return h.WriteData(h.stream, true, chunk)
	}
	authorization := bytes.Repeat([]byte("A"), 256<<10)
	manyFields := func(h *h2) error {
		if err := h.open(methodStatus); err != nil {
			return err
		}
		block := slices.Clone(h.headers(methodStatus, [2]string{"authorization", string(authorization)}))
		h.stream += 2
		err := h.WriteHeaders(http2.HeadersFrameParam{StreamID: h.stream, BlockFragment: block[:16<<10]})
		for rest := block[16<<10:]; err == nil && len(rest) > 0; {
			n := min(len(rest), 16<<10)
			err = h.WriteContinuation(h.stream, n == len(rest), rest[:n])
			rest = rest[n:]
		}
		return err
	}
	said := func(text []byte, perSecond int, more []byte) func(context.Context, *conn) {
		return func(ctx context.Context, c *conn) {
			if _, err := c.Write(text); err == nil {
				c.again(ctx, perSecond, func() error { _, err := c.Write(more); return err })
			}
		}
	}
	post := fmt.Appendf(nil, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", methodStatus, 1<<30)
	frames := append([]byte{0}, bytes.Repeat([]byte{0xdb, 0xff, 0xff, 0xff, 0xff}, 64)...) // texts of 4 GiB
	return []trouble{
		{name: "unended calls of nobody", at: overGRPC, tls: client("h2"), keep: 6, perSecond: 10, do: flooded(200, unended(methodStatus))},
		{name: "unended health checks", at: overGRPC, tls: client("h2"), keep: 6, perSecond: 10, do: flooded(200, unended(methodHealth))},
		{name: "huge requests of a reader", at: overGRPC, tls: client("h2", cfg.Reader), keep: 3, perSecond: 10, do: flooded(100, huge)},
		{name: "huge authorization over gRPC", at: overHTTP2, tls: client("h2"), keep: 6, perSecond: 10, do: flooded(10, manyFields)},
		{name: "huge authorization over HTTP", at: overHTTP, tls: client("http/1.1"), keep: 3, perSecond: 10,
			do: said([]byte("GET /metrics HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "), 100, authorization[:16<<10])},
		{name: "huge posts of a reader", at: overHTTP, tls: client("http/1.1", cfg.Reader), keep: 3, perSecond: 10, do: said(post, 100, chunk)},
		{name: "unread posts of nobody", at: overHTTP, tls: client("http/1.1"), keep: 100, perSecond: 10, do: said(post, 1, chunk[:1])},
		{name: "raft frames of a worker", at: overRaft, tls: client("", cfg.Worker), keep: 3, perSecond: 10, do: said(frames, 100, frames)},
		{name: "raft frames of nobody", at: overRaft, tls: client(""), keep: 3, perSecond: 10, do: said(frames, 100, frames)},
		{name: "gossip of 4 GiB", at: gossiping, keep: 30, perSecond: 50, do: said(frame(cfg.Label, 1<<32-1), 50, chunk)},
		{name: "gossip of 19 MiB", at: gossiping, keep: 30, perSecond: 50, do: said(frame(cfg.Label, 19<<20), 200, chunk)},
	}
}
