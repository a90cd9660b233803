package gossip

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"testing"
	"time"
)

// FuzzSockets sends packets and streams to the sockets of two members, one with a
// key and one without, in front of them the label or not. Neither may end, nor take
// the sender for a member.
func FuzzSockets(f *testing.F) {
	open, closed := fuzzed(f), fuzzed(f, keyA)
	for _, b := range [][]byte{
		{6, 0, 0, 0, 0, 0, 0, 0},
		{encryptByte, 0, 0, 0, 29, encryptionVersion, 1, 2, 3},
		{7, 3, 0x82, 0xa5, 'S', 'e', 'q', 'N', 'o', 1},
		{0, 0x82, 0xa5, 'S', 'e', 'q', 'N', 'o', 1, 0xa4, 'N', 'o', 'd', 'e', 0xa3, 's', '/', 'a'},
		{4, 0x85, 0xab, 'I', 'n', 'c', 'a', 'r', 'n', 'a', 't', 'i', 'o', 'n', 1, 0xa4, 'N', 'o', 'd', 'e', 0xa1, 'x', 0xa4, 'A', 'd', 'd', 'r', 0xa4, 127, 0, 0, 1},
		{9, 0x82, 0xa4, 'A', 'l', 'g', 'o', 0, 0xa3, 'B', 'u', 'f', 0xa2, 1, 2},
	} {
		f.Add(true, true, b)
		f.Add(true, false, b)
		f.Add(false, true, b)
	}
	label := append([]byte{labelByte, byte(len(testLabel))}, testLabel...)
	f.Fuzz(func(t *testing.T, stream, labelled bool, b []byte) {
		if labelled {
			b = append(label[:len(label):len(label)], b...)
		}
		for _, g := range []*Gossip{open, closed} {
			send(t, g.LocalAddr(), stream, b)
			if n := len(g.Members()); n != 1 {
				t.Fatalf("%d members: %+v", n, g.Members())
			}
		}
	})
}

// fuzzed is a member alone, on real sockets.
func fuzzed(f *testing.F, keys ...[]byte) *Gossip {
	f.Helper()
	g, err := New(Config{Label: testLabel, Keys: keys, BindAddr: "127.0.0.1:0", Meta: Meta{Role: RoleServer, ID: "a"}, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		f.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- g.Run(context.Background()) }()
	f.Cleanup(func() {
		if err := errors.Join(g.Shutdown(context.Background()), <-done); err != nil {
			f.Error(err)
		}
	})
	for len(g.Members()) == 0 {
		<-g.Changed()
	}
	return g
}

// send also waits until the other end has done with a stream.
func send(t *testing.T, addr string, stream bool, b []byte) {
	t.Helper()
	network := "udp"
	if stream {
		network = "tcp"
	}
	c, err := net.Dial(network, addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := c.Write(b); err != nil || !stream {
		return
	}
	_ = c.(*net.TCPConn).CloseWrite()
	_, err = io.Copy(io.Discard, c)
	var slow net.Error
	if errors.As(err, &slow) && slow.Timeout() {
		t.Error("the stream stays open for twenty seconds after its end")
	}
}
