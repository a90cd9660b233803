package server

import (
	"bytes"
	"crypto/tls"
	"io"
	"log"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
)

type lockedText struct {
	mu sync.Mutex
	bytes.Buffer
}

func (l *lockedText) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Buffer.Write(b)
}

func (l *lockedText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Buffer.String()
}

// Somebody who has proven nothing and breaks HTTP/2 on the HTTP port, again and again:
// the log has none of that, and nothing is written beside the log.
func TestBrokenConnectionsAreNoNews(t *testing.T) {
	c, _ := secureCluster(t, 1)
	var said, beside lockedText
	c.configs[0].Logger = slog.New(slog.NewTextHandler(&said, &slog.HandlerOptions{Level: slog.LevelInfo}))
	log.SetOutput(&beside)
	defer log.SetOutput(os.Stderr)
	c.startAll()
	stranger := &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}}
	for range 4 { // a second each, until net/http closes it
		conn, err := tls.Dial("tcp", c.running[0].Addrs().HTTP, stranger)
		if err != nil {
			t.Fatal(err)
		}
		// SETTINGS, and a PING on a stream.
		_, _ = io.WriteString(conn, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00\x00\x00\x08\x06\x00\x00\x00\x00\x05ABCDEFGH")
		_, _ = io.Copy(io.Discard, conn)
		_ = conn.Close()
	}
	if text := said.String() + beside.String(); strings.Contains(text, "PROTOCOL_ERROR") {
		t.Errorf("%d lines about broken connections:\n%.400s", strings.Count(text, "PROTOCOL_ERROR"), text)
	}
}

func TestWhatHTTPSaysIsBounded(t *testing.T) {
	var b bytes.Buffer
	to := newHTTPLog(slog.New(slog.NewTextHandler(&b, &slog.HandlerOptions{Level: slog.LevelDebug})))
	for range 1000 {
		to.Print("http2: server connection error")
	}
	if n := strings.Count(b.String(), "\n"); n < 5 || n > 15 || strings.Contains(b.String(), "level=ERROR") {
		t.Errorf("%d lines of a thousand\n%.300s", n, b.String())
	}
	to.Print("http: panic serving 192.0.2.7:1: oh no\ngoroutine 7")
	if !strings.Contains(b.String(), "level=ERROR") || !strings.Contains(b.String(), "oh no") {
		t.Errorf("a panic is not told of:\n%s", b.String())
	}
}
