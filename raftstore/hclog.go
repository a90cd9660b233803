package raftstore

import (
	"context"
	"fmt"
	"io"
	"log"
	"log/slog"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
)

// repeatEvery is how often a line that a broken connection repeats for each
// attempt is let through.
const repeatEvery = 10 * time.Second

// logAdapter lets the libraries log to slog. Their Info is about their own
// inner life and becomes Debug. The same warning is logged once in ten seconds.
type logAdapter struct {
	to   *slog.Logger
	name string
	args []any
	seen *repeats
}

// repeats remembers when a line was last let through.
type repeats struct {
	mu   sync.Mutex
	last map[string]time.Time
	held map[string]int
}

var _ hclog.Logger = (*logAdapter)(nil)

func newLogAdapter(to *slog.Logger, name string) *logAdapter {
	return &logAdapter{to: to, name: name, seen: newRepeats()}
}

func newRepeats() *repeats { return &repeats{last: map[string]time.Time{}, held: map[string]int{}} }

// pass reports whether a line may go out and how many like it were held back.
func (r *repeats) pass(key string) (held int, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if last, seen := r.last[key]; seen && now.Sub(last) < repeatEvery {
		r.held[key]++
		return 0, false
	}
	if len(r.last) > 256 { // keys hold server ids: bounded, but not by us
		clear(r.last)
		clear(r.held)
	}
	held = r.held[key]
	r.last[key], r.held[key] = now, 0
	return held, true
}

func (a *logAdapter) Log(level hclog.Level, msg string, args ...any) {
	var l slog.Level
	switch level {
	case hclog.Error:
		l = slog.LevelError
	case hclog.Warn:
		l = slog.LevelWarn
	case hclog.Info:
		l = slog.LevelDebug
	default:
		l = slog.LevelDebug - 4
	}
	if !a.to.Enabled(context.Background(), l) {
		return
	}
	all := make([]any, 0, len(a.args)+len(args)+4)
	all = append(append(all, a.args...), args...)
	key := msg
	for i := 1; i < len(all); i += 2 {
		switch v := all[i].(type) {
		case hclog.Format:
			all[i] = fmt.Sprintf(v[0].(string), v[1:]...)
		case fmt.Stringer, error:
			all[i] = fmt.Sprint(v)
		}
		if k := all[i-1]; k == "peer" || k == "server-id" || k == "target" {
			key += fmt.Sprint(all[i])
		}
	}
	if l >= slog.LevelWarn {
		held, ok := a.seen.pass(key)
		if !ok {
			return
		}
		if held > 0 {
			all = append(all, "repeated", held)
		}
	}
	a.to.Log(context.Background(), l, a.name+": "+msg, all...)
}

func (a *logAdapter) Trace(msg string, args ...any) { a.Log(hclog.Trace, msg, args...) }
func (a *logAdapter) Debug(msg string, args ...any) { a.Log(hclog.Debug, msg, args...) }
func (a *logAdapter) Info(msg string, args ...any)  { a.Log(hclog.Info, msg, args...) }
func (a *logAdapter) Warn(msg string, args ...any)  { a.Log(hclog.Warn, msg, args...) }
func (a *logAdapter) Error(msg string, args ...any) { a.Log(hclog.Error, msg, args...) }

func (a *logAdapter) IsTrace() bool { return false }
func (a *logAdapter) IsDebug() bool {
	return a.to.Enabled(context.Background(), slog.LevelDebug)
}
func (a *logAdapter) IsInfo() bool  { return a.IsDebug() }
func (a *logAdapter) IsWarn() bool  { return true }
func (a *logAdapter) IsError() bool { return true }

func (a *logAdapter) ImpliedArgs() []any { return a.args }
func (a *logAdapter) Name() string       { return a.name }

func (a *logAdapter) With(args ...any) hclog.Logger {
	b := *a
	b.args = append(append([]any{}, a.args...), args...)
	return &b
}

func (a *logAdapter) Named(name string) hclog.Logger { return a.ResetNamed(a.name + "." + name) }

func (a *logAdapter) ResetNamed(name string) hclog.Logger {
	b := *a
	b.name = name
	return &b
}

func (a *logAdapter) SetLevel(hclog.Level)  {}
func (a *logAdapter) GetLevel() hclog.Level { return hclog.NoLevel }

func (a *logAdapter) StandardLogger(o *hclog.StandardLoggerOptions) *log.Logger {
	return log.New(a.StandardWriter(o), "", 0)
}

func (a *logAdapter) StandardWriter(*hclog.StandardLoggerOptions) io.Writer { return lineWriter{a} }

// lineWriter logs each write as a line.
type lineWriter struct{ a *logAdapter }

func (w lineWriter) Write(p []byte) (int, error) {
	w.a.Warn(string(p))
	return len(p), nil
}
