package httpfence

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/leasehold-dev/leasehold/ownership/fence"
)

// Reasons of a refusal, in HeaderRefused. The two of a 409 are fence.ReasonStale
// and fence.ReasonOtherOwner.
const (
	ReasonMissing     = "missing"
	ReasonMalformed   = "malformed"
	ReasonNotAllowed  = "not_allowed"
	ReasonUnavailable = "unavailable"
	ReasonInterrupted = "interrupted"
)

// RefusedError is what CheckResponse makes of a refusal that is not about
// tokens. Only with ReasonInterrupted may the request have had an effect.
type RefusedError struct {
	Status int    // of the response
	Reason string // one of the Reason constants
	Detail string // the server's words
}

// Error repeats the server's words.
func (e *RefusedError) Error() string {
	return fmt.Sprintf("fenced request refused with status %d (%s): %s", e.Status, e.Reason, e.Detail)
}

// problem is the body of a refusal, after RFC 9457. Tokens are strings, so
// that no JSON reader rounds them.
type problem struct {
	Type         string `json:"type"`
	Title        string `json:"title"`
	Status       int    `json:"status"`
	Detail       string `json:"detail"`
	Reason       string `json:"reason"`
	Header       string `json:"header,omitempty"`
	Value        string `json:"value,omitempty"`
	Limit        string `json:"limit,omitempty"`
	CurrentToken string `json:"current_token,omitempty"`
	CurrentOwner string `json:"current_owner,omitempty"`
}

func (p problem) write(w http.ResponseWriter) {
	p.Type = "about:blank"
	p.Title = http.StatusText(p.Status)
	h := w.Header()
	h.Set("Content-Type", "application/problem+json")
	h.Set("Cache-Control", "no-store")
	h.Set(HeaderRefused, p.Reason)
	if p.CurrentToken != "" {
		h.Set(HeaderCurrentToken, p.CurrentToken)
		h.Set(HeaderCurrentOwner, escape(p.CurrentOwner))
	}
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(p) // the client has gone: nobody to tell
}

func headerProblem(err error) problem {
	p := problem{Status: http.StatusBadRequest, Reason: ReasonMalformed, Detail: err.Error()}
	if errors.Is(err, ErrMissing) {
		p.Status, p.Reason = http.StatusPreconditionRequired, ReasonMissing
	}
	var he *HeaderError
	if errors.As(err, &he) {
		p.Header, p.Value, p.Limit = he.Header, he.Value, he.Want
	}
	return p
}

func staleProblem(e *fence.StaleError) problem {
	return problem{
		Status:       http.StatusConflict,
		Reason:       e.Reason,
		Detail:       e.Error(),
		CurrentToken: e.Current.String(),
		CurrentOwner: e.CurrentOwner,
	}
}

// CheckResponse returns nil for every response that is not a refusal of this
// package's Middleware or ClaimHandler, whatever its status: the handler has
// answered. A 409 comes back as a *fence.StaleError with what was sent and what
// is current, any other refusal as a *RefusedError, for which it reads the
// body. It does not close the body.
func CheckResponse(resp *http.Response) error {
	reason := resp.Header.Get(HeaderRefused)
	if reason == "" {
		return nil
	}
	if reason == fence.ReasonStale || reason == fence.ReasonOtherOwner {
		if stale, ok := staleFrom(resp, reason); ok {
			return stale
		}
	}
	e := &RefusedError{Status: resp.StatusCode, Reason: reason, Detail: resp.Status}
	var p problem
	if json.NewDecoder(io.LimitReader(resp.Body, 64<<10)).Decode(&p) == nil && p.Detail != "" {
		e.Detail = p.Detail
	}
	return e
}

// staleFrom needs the headers only: the answer to a HEAD request has no body.
func staleFrom(resp *http.Response, reason string) (*fence.StaleError, bool) {
	if resp.Request == nil {
		return nil, false
	}
	sent, err := ParseStamp(resp.Request.Header)
	if err != nil {
		return nil, false
	}
	token, ok := decimal(resp.Header.Get(HeaderCurrentToken))
	if !ok || fence.Token(token) > fence.MaxToken {
		return nil, false
	}
	owner, ok := unescape(resp.Header.Get(HeaderCurrentOwner))
	if !ok {
		return nil, false
	}
	return &fence.StaleError{Stamp: sent, Current: fence.Token(token), CurrentOwner: owner, Reason: reason}, true
}
