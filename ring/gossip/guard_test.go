package gossip

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"
)

// recorder is a transport that keeps what is sent through it.
type recorder struct {
	*memport
	mu      sync.Mutex
	packets []*memberlist.Packet
	to      []string
}

func (r *recorder) WriteTo(b []byte, addr string) (time.Time, error) {
	r.mu.Lock()
	r.packets = append(r.packets, &memberlist.Packet{Buf: bytes.Clone(b), From: address(r.addr())})
	r.to = append(r.to, addr)
	r.mu.Unlock()
	return r.memport.WriteTo(b, addr)
}

func (r *recorder) WriteToAddress(b []byte, a memberlist.Address) (time.Time, error) {
	return r.WriteTo(b, a.Addr)
}

func (r *recorder) recorded() (packets []*memberlist.Packet, to []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.packets, r.to
}

// record makes a member's packets be recorded.
func record(r *recorder) func(*Config) {
	return func(c *Config) {
		r.memport = c.Transport.(*memport)
		c.Transport = r
	}
}

// O-89: somebody without a key has recorded a member's whole life, its goodbye
// included, and plays it to the others while the member's next process runs.
func TestReplayedPacketsChangeNothing(t *testing.T) {
	inBubble(t, func(h *harness) {
		a, b := h.start(RoleServer, "a", withKeys(keyA)), h.start(RoleServer, "b", withKeys(keyA))
		tape := &recorder{}
		worker := h.start(RoleWorker, "w", withKeys(keyA), record(tape))
		h.waitAllAlive(20*time.Second, a, b, worker)
		if err := worker.UpdateMeta(func(m *Meta) { m.Session = 1 }); err != nil {
			t.Fatal(err)
		}
		<-time.After(5 * time.Second)
		if err := worker.Leave(h.t.Context()); err != nil {
			t.Fatal(err)
		}
		h.waitFor(5*time.Second, "the worker has left", func() bool { m, _ := a.Member("w/w"); return m.Status == Left })
		again := h.start(RoleWorker, "w", withKeys(keyA), func(c *Config) { c.Meta.Boot = 99 })
		members := []*testMember{a, b, again}
		h.waitAllAlive(20*time.Second, members...)

		packets, to := tape.recorded()
		if len(packets) < 100 {
			t.Fatalf("only %d packets were recorded", len(packets))
		}
		for round := range 3 {
			for i, p := range packets {
				for _, m := range members {
					if m.LocalAddr() == to[i] || round > 0 { // also to those it was not for
						m.port.push(&memberlist.Packet{Buf: bytes.Clone(p.Buf), From: p.From})
					}
				}
				<-time.After(time.Millisecond)
				for _, m := range members {
					if seen, _ := m.Member("w/w"); seen.Status != Alive || seen.Addr != again.LocalAddr() || seen.Meta.Boot != 99 {
						t.Fatalf("round %d, packet %d: %s sees %+v", round, i, m.cfg.Name, seen)
					}
				}
			}
		}
		<-time.After(10 * time.Second)
		if !allAlive(members) || a.counts.get(func(c *counting) int { return c.worst }) != 0 {
			t.Fatalf("replayed packets changed the members: %s", describe(a))
		}
	})
}

// A recorded packet with version 0 of the encryption passes the authentication and
// ends memberlist; see guard.
func TestRecordedPacketWithAnotherVersionIsRefused(t *testing.T) {
	inBubble(t, func(h *harness) {
		tape := &recorder{}
		a, b := h.start(RoleServer, "a", withKeys(keyA)), h.start(RoleServer, "b", withKeys(keyA), record(tape))
		h.waitAllAlive(20*time.Second, a, b)
		<-time.After(10 * time.Second)
		if n := a.counts.rejectedFor(rejectedDecrypt); n != 0 {
			t.Fatalf("%d of the members' own packets were refused", n)
		}
		packets, _ := tape.recorded()
		version := 2 + len(testLabel)
		for _, p := range packets {
			if p.Buf[version] != encryptionVersion {
				t.Fatalf("members send version %d", p.Buf[version])
			}
			forged := bytes.Clone(p.Buf)
			forged[version] = 0
			a.port.push(&memberlist.Packet{Buf: forged, From: p.From})
			<-time.After(time.Millisecond)
		}
		if n := a.counts.rejectedFor(rejectedDecrypt); n != len(packets) {
			t.Fatalf("%d of %d packets were refused", n, len(packets))
		}
		if !allAlive([]*testMember{a, b}) {
			t.Fatal("a forged packet changed the members")
		}
	})
}

// stream sends bytes to a member as somebody else would, and returns the answer.
func (h *harness) stream(to *testMember, parts ...[]byte) []byte {
	h.t.Helper()
	c, err := h.net.listen(1000+len(h.all)).DialTimeout(to.LocalAddr(), time.Second)
	if err != nil {
		h.t.Fatal(err)
	}
	go func() {
		for _, p := range parts {
			if _, err := c.Write(p); err != nil {
				return
			}
		}
	}()
	answer, _ := io.ReadAll(c) // until the member closes it, in any way
	_ = c.Close()
	return answer
}

func TestStreamsAreLookedAt(t *testing.T) {
	inBubble(t, func(h *harness) {
		a := h.start(RoleServer, "a", withKeys(keyA))
		label := append([]byte{labelByte, byte(len(testLabel))}, testLabel...)
		length := binary.BigEndian.AppendUint32(nil, 64)
		encrypted := append(append([]byte{encryptByte}, length...), make([]byte, 64)...)
		// Version 0, with the same lengths: nobody may get as far as the padding.
		h.stream(a, label, encrypted)
		h.stream(a, label, []byte{6, 0x83}) // in the clear
		if n := a.counts.rejectedFor(rejectedDecrypt); n != 2 {
			t.Fatalf("%d streams were refused for the encryption, want 2:\n%s", n, a.log.String())
		}
		// A long one is cut off.
		flood := append([]byte{encryptByte}, binary.BigEndian.AppendUint32(nil, 20<<20)...)
		h.stream(a, label, append(flood, encryptionVersion), make([]byte, maxStream))
		if n := a.counts.rejectedFor(rejectedSize); n != 1 {
			t.Fatalf("%d streams were refused for their size, want 1", n)
		}
		a.guard.mu.Lock()
		defer a.guard.mu.Unlock()
		if a.guard.held != 0 || len(a.guard.of) != 0 {
			t.Fatalf("%d bytes are held for streams that are over, of %v", a.guard.held, a.guard.of)
		}
	})
}

// Half-open streams take no more than their places, and the places come back.
func TestStreamsAtOnceAreBounded(t *testing.T) {
	inBubble(t, func(h *harness) {
		a := h.start(RoleServer, "a", withKeys(keyA))
		var open []net.Conn
		from := h.net.listen(1000)
		for range maxStreamsOfOne + 20 {
			c, err := from.DialTimeout(a.LocalAddr(), time.Second)
			if err != nil {
				t.Fatal(err)
			}
			open = append(open, c)
		}
		h.waitFor(time.Second, "those too many are refused", func() bool { return a.counts.rejectedFor(rejectedOverflow) == 20 })
		<-time.After(2 * streamTimeout)
		b := h.start(RoleServer, "b", withKeys(keyA))
		h.waitAllAlive(20*time.Second, a, b)
		a.guard.mu.Lock()
		defer a.guard.mu.Unlock()
		if a.guard.open != 0 || len(a.guard.from) != 0 {
			t.Fatalf("%d streams are counted as open, of %v", a.guard.open, a.guard.from)
		}
		for _, c := range open {
			_ = c.Close()
		}
	})
}

// endless is a stream from an address on which there is always more.
type endless struct {
	net.Conn
	from address
}

func (c endless) RemoteAddr() net.Addr       { return c.from }
func (c endless) Read(b []byte) (int, error) { return len(b), nil }
func (c endless) Close() error               { return nil }

// Streams that fill the memory there is for them do so for nobody else: neither those
// of one address for other addresses, nor those of many for members who say little.
func TestLongStreamsKeepNobodyOut(t *testing.T) {
	g, err := New(Config{Label: testLabel, BindAddr: "127.0.0.1:0", Meta: Meta{Role: RoleServer, ID: "a"}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = g.Shutdown(t.Context()) }()
	read := func(from string, most int) (n int) {
		c := g.guard.admit(endless{from: address(from)})
		t.Cleanup(func() { _ = c.Close() })
		for b := make([]byte, 4<<10); n < most; n += len(b) {
			if _, err := c.Read(b); err != nil {
				break
			}
		}
		return n
	}
	const long = maxStream * 3 / 4
	if n := read("10.9.0.1:1", long); n != long {
		t.Fatalf("%d bytes are read of a long stream", n)
	}
	if n := read("10.9.0.1:2", long); n > maxHeldOfOne-long {
		t.Errorf("one address has %d bytes beside %d", n, long)
	}
	if n := read("10.9.0.2:1", long); n != long {
		t.Errorf("another has %d bytes of %d", n, long)
	}
	for _, from := range []string{"10.9.0.3:1", "10.9.0.4:1", "10.9.0.5:1", "10.9.0.6:1"} {
		read(from, long)
	}
	if g.guard.held > maxHeld+6*shareOfHeld {
		t.Errorf("%d bytes are held", g.guard.held)
	}
	for _, from := range []string{"10.9.0.7:1", "10.9.0.1:3"} {
		if n := read(from, shareOfHeld); n != shareOfHeld {
			t.Errorf("%s: %d bytes are read of a short stream", from, n)
		}
	}
}

func TestLongPacketsAndPayloadsAreRefused(t *testing.T) {
	inBubble(t, func(h *harness) {
		a := h.start(RoleServer, "a")
		a.port.push(&memberlist.Packet{Buf: make([]byte, maxPacket+1), From: address("10.9.9.9:1")})
		h.waitFor(time.Second, "the packet is counted", func() bool { return a.counts.rejectedFor(rejectedSize) == 1 })
		longest := message{kind: kindAsk, from: "w/" + strings.Repeat("x", 128), target: "w/" + strings.Repeat("y", 128)}.encode()
		if len(longest) > maxPayload {
			t.Fatalf("a message of the longest names has %d bytes, more than are taken", len(longest))
		}
		a.receive(append(longest, make([]byte, maxPayload)...))
		if n := a.counts.rejectedFor(rejectedSize); n != 2 {
			t.Fatalf("%d counted, want 2", n)
		}
	})
}

// What follows the version of a stream is memberlist's, however it is cut.
func TestFrame(t *testing.T) {
	label := append([]byte{labelByte, 3}, "abc"...)
	good := []byte{encryptByte, 0, 0, 1, 0, encryptionVersion, 0, 10, 244}
	bad := []byte{encryptByte, 0, 0, 1, 0, 0, 1}
	for name, c := range map[string]struct {
		bytes []byte
		pass  bool
	}{
		"labelled": {append(bytes.Clone(label), good...), true}, "not labelled": {good, true},
		"labelled, version 0": {append(bytes.Clone(label), bad...), false}, "not labelled, version 0": {bad, false},
		"in the clear": {append(bytes.Clone(label), 6, 0, 0, 0, 0, 0, 0, 0), true}, "empty label": {[]byte{labelByte, 0, 10, 0, 0, 0, 0, 0}, true},
		"nothing": {nil, true},
	} {
		var whole, single frame
		if got := whole.pass(c.bytes); got != c.pass {
			t.Errorf("%s: %t", name, got)
		}
		got := true
		for _, b := range c.bytes {
			got = got && single.pass([]byte{b})
		}
		if got != c.pass {
			t.Errorf("%s, byte by byte: %t", name, got)
		}
	}
}

// FuzzReceive: what a member with the key, or anybody where there is none, sends
// must not end the process.
func FuzzReceive(f *testing.F) {
	g, err := New(Config{Label: testLabel, BindAddr: "127.0.0.1:0", Meta: Meta{Role: RoleServer, ID: "a"}})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = g.Shutdown(context.Background()) })
	f.Add(message{kind: kindAsk, id: 7, from: "s/a", target: "w/b"}.encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		g.receive(b)
		if reason := g.guard.refuse(b); reason != "" && len(b) <= maxPacket {
			t.Fatalf("refused for %s where nothing is encrypted", reason)
		}
		var fr frame
		fr.pass(b)
	})
}
