package main

import (
	"context"
	"log/slog"
	"slices"
	"sync"
)

// The last lines of a server's log are kept in memory at debug level, whatever
// the level of the output: who needs them needs those from before it went wrong.
const (
	ringLines = 2000
	ringBytes = 1 << 20
	ringLine  = 16 << 10 // of one line; the rest is cut off
)

// logRing keeps the last log lines. It is an io.Writer that is given a line at
// a time. Methods may be called from any goroutine.
type logRing struct {
	mu    sync.Mutex
	lines [][]byte // oldest first, from first on
	first int
	bytes int
}

// Write keeps a line and drops the oldest ones beyond the bounds.
func (r *logRing) Write(line []byte) (int, error) {
	kept := line
	if len(kept) > ringLine {
		kept = append(slices.Clone(kept[:ringLine]), " …\n"...)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, slices.Clone(kept))
	r.bytes += len(kept)
	for len(r.lines)-r.first > ringLines || r.bytes > ringBytes {
		r.bytes -= len(r.lines[r.first])
		r.lines[r.first] = nil
		r.first++
	}
	if r.first > ringLines { // half of the slice is empty by now
		r.lines = slices.Clone(r.lines[r.first:])
		r.first = 0
	}
	return len(line), nil
}

// text is all that is kept, oldest first.
func (r *logRing) text() []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Concat(r.lines[r.first:]...)
}

// keepIn has all that goes to log also kept in r.
func (r *logRing) keepIn(log *slog.Logger) *slog.Logger {
	return slog.New(teeHandler{log.Handler(), slog.NewJSONHandler(r, &slog.HandlerOptions{Level: slog.LevelDebug})})
}

// teeHandler gives each record to two handlers, each with a level of its own.
type teeHandler struct{ out, kept slog.Handler }

// Enabled implements slog.Handler.
func (t teeHandler) Enabled(ctx context.Context, l slog.Level) bool {
	return t.kept.Enabled(ctx, l) || t.out.Enabled(ctx, l)
}

// Handle implements slog.Handler.
func (t teeHandler) Handle(ctx context.Context, r slog.Record) error {
	if t.kept.Enabled(ctx, r.Level) {
		_ = t.kept.Handle(ctx, r.Clone()) // memory does not fail
	}
	if t.out.Enabled(ctx, r.Level) {
		return t.out.Handle(ctx, r)
	}
	return nil
}

// WithAttrs implements slog.Handler.
func (t teeHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return teeHandler{t.out.WithAttrs(attrs), t.kept.WithAttrs(attrs)}
}

// WithGroup implements slog.Handler.
func (t teeHandler) WithGroup(name string) slog.Handler {
	return teeHandler{t.out.WithGroup(name), t.kept.WithGroup(name)}
}
