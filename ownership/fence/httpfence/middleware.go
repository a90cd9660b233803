package httpfence

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/fence"
)

type options struct {
	allow  func(*http.Request, fence.Stamp) error
	logger *slog.Logger
}

// Option changes what Middleware and ClaimHandler do.
type Option func(*options)

// Allow gives the server a say before a stamp is compared: an error refuses it
// with 403 and the error's text, and nothing is remembered of it. A server
// that does not trust its clients needs it twice over: a path must belong to
// the partition whose stamp comes with it, and the gate keeps a record of each
// keyspace, partition and resource that it is asked about.
func Allow(rule func(r *http.Request, s fence.Stamp) error) Option {
	return func(o *options) { o.allow = rule }
}

// Logger is where the reason of a 503 goes, which the client is not told.
// Default: slog.Default().
func Logger(l *slog.Logger) Option {
	return func(o *options) { o.logger = l }
}

func newOptions(opts []Option) options {
	o := options{allow: func(*http.Request, fence.Stamp) error { return nil }}
	for _, opt := range opts {
		opt(&o)
	}
	if o.logger == nil {
		o.logger = slog.Default()
	}
	return o
}

// Middleware guards a handler: it is called for requests whose stamp the gate
// accepts. Its request context carries the stamp and ends, with a
// *fence.StaleError as cause, when a newer one arrives, which then waits for
// the handler to return. A handler that returns after that without having
// answered is answered for, with 503 interrupted. Reads that need no guard are
// better served without the middleware.
func Middleware(g *fence.Gate, opts ...Option) func(http.Handler) http.Handler {
	o := newOptions(opts)
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			o.serve(g, next, w, r)
		})
	}
}

func (o options) serve(g *fence.Gate, next http.Handler, w http.ResponseWriter, r *http.Request) {
	s, err := ParseStamp(r.Header)
	if err != nil {
		headerProblem(err).write(w)
		return
	}
	if err := o.allow(r, s); err != nil {
		problem{Status: http.StatusForbidden, Reason: ReasonNotAllowed, Detail: err.Error()}.write(w)
		return
	}
	err = g.Do(r.Context(), s, func(ctx context.Context) error {
		answered := &response{ResponseWriter: w}
		newer := handle(ctx, next, answered, r)
		if newer != nil && !answered.wrote {
			problem{
				Status:       http.StatusServiceUnavailable,
				Reason:       ReasonInterrupted,
				Detail:       "a newer owner came while the request was handled; its outcome is unknown",
				CurrentToken: newer.Current.String(),
				CurrentOwner: newer.CurrentOwner,
			}.write(w)
		}
		return nil
	})
	var stale *fence.StaleError
	switch {
	case err == nil:
	case errors.As(err, &stale):
		staleProblem(stale).write(w)
	default:
		o.logger.LogAttrs(r.Context(), slog.LevelWarn, "fenced request not let through",
			slog.String("keyspace", s.Keyspace), slog.Uint64("partition", uint64(s.Partition)),
			slog.String("token", s.Token.String()), slog.String("owner", s.Owner), slog.Any("error", err))
		unavailable().write(w)
	}
}

// lastWords is how long the response to a request that has been cut may still
// take to leave.
const lastWords = time.Second

// handle calls the handler and returns the newer stamp's refusal if one came
// meanwhile. The handler may be reading a body whose sender is paused, or
// writing to one, and does not hear of its context there; so the connection is
// given a deadline as well.
func handle(ctx context.Context, next http.Handler, w http.ResponseWriter, r *http.Request) *fence.StaleError {
	var newer *fence.StaleError
	done := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(done)
		if errors.As(context.Cause(ctx), &newer) {
			conn := http.NewResponseController(w) // without deadlines, the handler is waited for
			now := time.Now()
			_ = conn.SetReadDeadline(now)
			_ = conn.SetWriteDeadline(now.Add(lastWords))
		}
	})
	func() {
		defer func() {
			if !stop() {
				<-done // the connection is not ours any more once we have returned
			}
		}()
		next.ServeHTTP(w, r.WithContext(ctx))
	}()
	return newer
}

func unavailable() problem {
	return problem{
		Status: http.StatusServiceUnavailable,
		Reason: ReasonUnavailable,
		Detail: "the stamp could not be claimed: the durable guard or an older write in flight did not answer; try again",
	}
}

// response notices whether the handler has answered.
type response struct {
	http.ResponseWriter
	wrote bool
}

func (r *response) WriteHeader(status int) {
	r.wrote = r.wrote || status >= 200 // 1xx are not yet the answer
	r.ResponseWriter.WriteHeader(status)
}

func (r *response) Write(b []byte) (int, error) {
	r.wrote = true
	return r.ResponseWriter.Write(b)
}

// Unwrap is for http.ResponseController.
func (r *response) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// Flush keeps older handlers working that ask for an http.Flusher.
func (r *response) Flush() {
	r.wrote = true
	_ = http.NewResponseController(r.ResponseWriter).Flush()
}
