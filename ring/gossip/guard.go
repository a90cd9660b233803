package gossip

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
)

// Bounds of what the network may make us hold. memberlist bounds a stream by 20 MiB
// and by two seconds, and nothing else: how many there are, and how many of one
// sender; it keeps the 64 KiB that it reads a packet into for as long as a message
// of it waits.
const (
	// maxPacket is far above what members send: 1,400 bytes and the label.
	maxPacket = 4 << 10
	// maxPayload is above any probe message; see message.
	maxPayload = 512
	// maxStream is room for what 10,000 members say of themselves, three times over.
	maxStream = 8 << 20
	// maxHeld is for all streams together that others have opened, maxHeldOfOne for
	// those of one address. A stream has its share beside those that fill them.
	maxHeld      = 32 << 20
	maxHeldOfOne = maxStream
	shareOfHeld  = maxHeld / maxStreams
	// maxStreams that others have opened may be there at once, maxStreamsOfOne from
	// one address.
	maxStreams      = 1024
	maxStreamsOfOne = 256
)

// Bytes of memberlist's framing.
const (
	labelByte         = 244 // the label follows: its length, its bytes
	encryptByte       = 10  // the length in four bytes and an encrypted message follow
	encryptionVersion = 1
)

// guard is the transport that memberlist sees: it lets through what is worth
// decrypting. It outlives a memberlist, of which there is a second one after
// startOver.
//
// It also refuses version 0 of the encryption, which no release has ever sent. Its
// byte is not authenticated: anybody who has recorded a packet can send it again
// with 0 there, and memberlist would take the last byte of the message for the
// length of a padding, which ends the process when it is longer than the message.
type guard struct {
	memberlist.Transport
	g       *Gossip
	packets chan *memberlist.Packet
	streams chan net.Conn

	mu   sync.Mutex
	open int
	from map[string]int // open, by host
	held int            // bytes read from streams that are open
	of   map[string]int // held, by host
}

func newGuard(g *Gossip) *guard {
	return &guard{
		Transport: g.transport, g: g,
		packets: make(chan *memberlist.Packet), streams: make(chan net.Conn), from: make(map[string]int), of: make(map[string]int),
	}
}

// PacketCh implements memberlist.Transport.
func (t *guard) PacketCh() <-chan *memberlist.Packet { return t.packets }

// StreamCh implements memberlist.Transport.
func (t *guard) StreamCh() <-chan net.Conn { return t.streams }

// Shutdown implements memberlist.Transport; releaseTransport does it.
func (t *guard) Shutdown() error { return nil }

// DialTimeout implements memberlist.Transport.
func (t *guard) DialTimeout(addr string, timeout time.Duration) (net.Conn, error) {
	c, err := t.Transport.DialTimeout(addr, timeout)
	if err != nil {
		return nil, err
	}
	return &guarded{Conn: c, guard: t}, nil
}

// loop hands over what arrives until ctx ends.
func (t *guard) loop(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case p := <-t.Transport.PacketCh():
			if reason := t.refuse(p.Buf); reason != "" {
				t.g.cfg.Observer.Rejected(reason)
				continue
			}
			p.Buf = bytes.Clone(p.Buf)
			select {
			case t.packets <- p:
			case <-ctx.Done():
				return
			}
		case c := <-t.Transport.StreamCh():
			in := t.admit(c)
			if in == nil {
				t.g.cfg.Observer.Rejected(rejectedOverflow)
				_ = c.Close() // nobody has read from it
				continue
			}
			select {
			case t.streams <- in:
			case <-ctx.Done():
				_ = in.Close()
				return
			}
		}
	}
}

// refuse returns why a packet is not passed on, or "".
func (t *guard) refuse(packet []byte) string {
	if len(packet) > maxPacket {
		return rejectedSize
	}
	if !t.g.keys.encrypts() {
		return ""
	}
	// With another label, or a damaged one, it is memberlist that refuses it.
	rest, _, err := memberlist.RemoveLabelHeaderFromPacket(packet)
	if err == nil && len(rest) > 0 && rest[0] != encryptionVersion {
		return rejectedDecrypt
	}
	return ""
}

// admit returns the stream to hand over, nil if there are too many.
func (t *guard) admit(c net.Conn) *guarded {
	host := c.RemoteAddr().String()
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.open >= maxStreams || t.from[host] >= maxStreamsOfOne {
		return nil
	}
	t.open++
	t.from[host]++
	return &guarded{Conn: c, guard: t, host: host, inbound: true}
}

func (t *guard) release(c *guarded) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.held -= c.held
	if t.of[c.host] -= c.held; t.of[c.host] == 0 {
		delete(t.of, c.host)
	}
	t.open--
	if t.from[c.host]--; t.from[c.host] == 0 {
		delete(t.from, c.host)
	}
	c.released = true
}

// hold counts bytes of a stream, and reports whether there is room for them.
func (t *guard) hold(c *guarded, n int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c.released {
		return true // nobody keeps them
	}
	c.held += n
	t.held += n
	t.of[c.host] += n
	return c.held <= shareOfHeld || t.held <= maxHeld && t.of[c.host] <= maxHeldOfOne
}

// guarded is a stream whose content is looked at as memberlist reads it.
type guarded struct {
	net.Conn
	guard   *guard
	host    string
	inbound bool
	once    sync.Once
	// Of the one goroutine that reads.
	read  int
	frame frame
	// Under the guard's lock.
	held     int
	released bool
}

var errFrame = errors.New("cannot decrypt: not the version of the encryption that members use")

// Read implements net.Conn.
func (c *guarded) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n == 0 {
		return n, err
	}
	c.read += n
	if c.read > maxStream || c.inbound && !c.guard.hold(c, n) {
		c.guard.g.cfg.Observer.Rejected(rejectedSize)
		return 0, fmt.Errorf("stream of more than %d bytes, those of its address of more than %d, or all together of more than %d", maxStream, maxHeldOfOne, maxHeld)
	}
	if !c.frame.pass(b[:n]) && c.guard.g.keys.encrypts() {
		return 0, errFrame // counted where memberlist's line about it is read
	}
	return n, err
}

// Close implements net.Conn.
func (c *guarded) Close() error {
	err := c.Conn.Close()
	if c.inbound {
		c.once.Do(func() { c.guard.release(c) })
	}
	return err
}

// frame follows the beginning of a stream up to the version of the encryption.
type frame struct {
	step step
	left int // bytes of this step
}

type step uint8

const (
	stepFirst   step = iota // a label or a message
	stepSize                // the label's length
	stepLabel               // the label
	stepMessage             // the kind of the message
	stepLength              // the encrypted message's length
	stepVersion
	stepDone
)

// pass tells whether what has been seen so far is nothing but what members send.
func (f *frame) pass(b []byte) bool {
	for _, x := range b {
		switch f.step {
		case stepFirst, stepMessage:
			switch {
			case x == labelByte && f.step == stepFirst:
				f.step = stepSize
			case x == encryptByte:
				f.step, f.left = stepLength, 4
			default:
				f.step = stepDone // memberlist knows whether that may be
			}
		case stepSize:
			if f.step, f.left = stepLabel, int(x); x == 0 {
				f.step = stepDone
			}
		case stepLabel:
			if f.left--; f.left == 0 {
				f.step = stepMessage
			}
		case stepLength:
			if f.left--; f.left == 0 {
				f.step = stepVersion
			}
		case stepVersion:
			if x != encryptionVersion {
				return false
			}
			f.step = stepDone
		case stepDone:
			return true
		}
	}
	return true
}
