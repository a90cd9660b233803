package server

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// A process that writes to an end that has been closed is told so by whichever it
// does next, reading or writing, as TCP does it: a connection whose writes fail
// while its reads wait would keep gRPC busy at one instant for ever. Through a cut
// network nobody is told anything.
func TestWriteToAClosedEndIsReset(t *testing.T) {
	for name, cut := range map[string]bool{"reached": false, "cut off": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newSimNet(rand.New(rand.NewPCG(1, 1)))
				a, b := n.host("10.0.0.1"), n.host("10.0.0.2")
				l, err := b.listen("10.0.0.2:1")
				if err != nil {
					t.Fatal(err)
				}
				near, err := a.dial(context.Background(), "10.0.0.2:1")
				if err != nil {
					t.Fatal(err)
				}
				far, err := l.Accept()
				if err != nil {
					t.Fatal(err)
				}
				n.block("10.0.0.2", "10.0.0.1", cut)
				if err := far.Close(); err != nil {
					t.Fatal(err)
				}
				if _, err := near.Write([]byte("x")); err != nil {
					t.Errorf("the first write cannot know yet: %v", err)
				}
				_, err = near.Write([]byte("y"))
				readErr := readFor(near, time.Second)
				if cut {
					var timeout net.Error
					if err != nil || !errors.As(readErr, &timeout) || !timeout.Timeout() {
						t.Errorf("through a cut network: write %v, read %v", err, readErr)
					}
					return
				}
				if !errors.Is(err, syscall.ECONNRESET) || !errors.Is(readErr, syscall.ECONNRESET) {
					t.Errorf("write %v, read %v, want both reset", err, readErr)
				}
			})
		})
	}
}

func readFor(c net.Conn, d time.Duration) error {
	if err := c.SetReadDeadline(time.Now().Add(d)); err != nil {
		return err
	}
	_, err := c.Read(make([]byte, 1))
	return err
}
