package server

import (
	"context"
	"log"
	"log/slog"
	"strings"

	"golang.org/x/time/rate"
)

// httpLog takes what net/http says by itself into the server's log, and out of it what
// strangers can make it say: each broken connection is worth a line to it.
type httpLog struct {
	to    *slog.Logger
	lines *rate.Limiter
}

func newHTTPLog(to *slog.Logger) *log.Logger {
	return log.New(httpLog{to, rate.NewLimiter(1, 10)}, "", 0)
}

// Write implements io.Writer: a line of net/http's.
func (h httpLog) Write(line []byte) (int, error) {
	text := strings.TrimSpace(string(line))
	switch {
	case strings.HasPrefix(text, "http: panic"):
		h.to.Error("a request panicked", "cause", text)
	case h.lines.Allow():
		h.to.Log(context.Background(), slog.LevelDebug, "net/http", "cause", text)
	}
	return len(line), nil
}
