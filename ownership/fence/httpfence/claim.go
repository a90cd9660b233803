package httpfence

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"unicode/utf8"

	"github.com/leasehold-dev/leasehold/ownership/fence"
)

// Limits of a claim request.
const (
	MaxClaimStamps = 5_000
	MaxClaimBytes  = 24 << 20 // as many stamps of the longest names, all escaped
)

// The body of a claim and of its answer, in JSON:
//
//	{"stamps":[{"keyspace":"orders","partition":17,"token":"34","owner":"w4"}]}
//	{"claimed":1,"refused":[]}
type (
	claimRequest struct {
		Stamps []wireStamp `json:"stamps"`
	}
	claimAnswer struct {
		Claimed int           `json:"claimed"`
		Refused []wireRefusal `json:"refused"`
	}
	wireStamp struct {
		Keyspace  string  `json:"keyspace"`
		Partition *uint32 `json:"partition"` // a pointer: absent is not 0
		Token     string  `json:"token"`
		Owner     string  `json:"owner"`
		Resource  string  `json:"resource,omitempty"`
	}
	wireRefusal struct {
		wireStamp
		CurrentToken string `json:"current_token"`
		CurrentOwner string `json:"current_owner"`
		Reason       string `json:"reason"`
	}
)

func toWire(s fence.Stamp) wireStamp {
	return wireStamp{Keyspace: s.Keyspace, Partition: &s.Partition, Token: s.Token.String(), Owner: s.Owner, Resource: s.Resource}
}

func (w wireStamp) stamp() (fence.Stamp, error) {
	if w.Partition == nil {
		return fence.Stamp{}, fmt.Errorf("%w: partition is missing", fence.ErrInvalid)
	}
	token, ok := decimal(w.Token)
	if !ok {
		return fence.Stamp{}, fmt.Errorf("%w: token %.40q: want a string of %s", fence.ErrInvalid, w.Token, wantToken)
	}
	s := fence.Stamp{Keyspace: w.Keyspace, Partition: *w.Partition, Token: fence.Token(token), Owner: w.Owner, Resource: w.Resource}
	return s, validate(s)
}

// ClaimHandler serves claims: POST a list of stamps as JSON, as [Guard] does.
// It answers 200 if all have been accepted and 409 with those that were
// refused; anything else leaves all of them unknown. Put it in front of the
// same gate as the writes.
func ClaimHandler(g fence.Guard, opts ...Option) http.Handler {
	o := newOptions(opts)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		o.claim(g, w, r)
	})
}

func (o options) claim(g fence.Guard, w http.ResponseWriter, r *http.Request) {
	stamps, p := readClaim(w, r)
	if p != nil {
		p.write(w)
		return
	}
	for _, s := range stamps {
		if err := o.allow(r, s); err != nil {
			problem{Status: http.StatusForbidden, Reason: ReasonNotAllowed, Detail: fmt.Sprintf("claim of %s: %v", s.Key(), err)}.write(w)
			return
		}
	}
	err := g.Claim(r.Context(), stamps)
	var ce *fence.ClaimError
	switch {
	case err == nil, errors.As(err, &ce):
	case errors.Is(err, fence.ErrInvalid):
		problem{Status: http.StatusBadRequest, Reason: ReasonMalformed, Detail: err.Error()}.write(w)
		return
	default:
		o.logger.LogAttrs(r.Context(), slog.LevelWarn, "claim not answered", slog.Int("stamps", len(stamps)), slog.Any("error", err))
		unavailable().write(w)
		return
	}
	answer := claimAnswer{Claimed: len(stamps), Refused: []wireRefusal{}}
	status := http.StatusOK
	if ce != nil {
		status = http.StatusConflict
		answer.Claimed -= len(ce.Refused)
		for _, e := range ce.Refused {
			answer.Refused = append(answer.Refused, wireRefusal{toWire(e.Stamp), e.Current.String(), e.CurrentOwner, e.Reason})
		}
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(answer) // the client has gone: nobody to tell
}

// readClaim reads a whole request or nothing.
func readClaim(w http.ResponseWriter, r *http.Request) ([]fence.Stamp, *problem) {
	bad := func(status int, format string, args ...any) *problem {
		return &problem{Status: status, Reason: ReasonMalformed, Detail: fmt.Sprintf(format, args...)}
	}
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		return nil, bad(http.StatusMethodNotAllowed, "method %.20q: want POST", r.Method)
	}
	if ct, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || ct != "application/json" {
		return nil, bad(http.StatusUnsupportedMediaType, "content type %.40q: want application/json", r.Header.Get("Content-Type"))
	}
	var req claimRequest
	raw, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxClaimBytes))
	if err == nil {
		err = decodeStrictly(raw, &req)
	}
	var tooLong *http.MaxBytesError
	switch {
	case errors.As(err, &tooLong):
		return nil, bad(http.StatusRequestEntityTooLarge, "body is longer than %d bytes", MaxClaimBytes)
	case err != nil:
		return nil, bad(http.StatusBadRequest, "body: %.200v", err)
	case len(req.Stamps) == 0:
		return nil, bad(http.StatusBadRequest, "stamps: empty, want 1 to %d", MaxClaimStamps)
	case len(req.Stamps) > MaxClaimStamps:
		return nil, bad(http.StatusRequestEntityTooLarge, "stamps: %d, want at most %d", len(req.Stamps), MaxClaimStamps)
	}
	stamps := make([]fence.Stamp, len(req.Stamps))
	for i, ws := range req.Stamps {
		if stamps[i], err = ws.stamp(); err != nil {
			return nil, bad(http.StatusBadRequest, "stamps[%d]: %v", i, err)
		}
	}
	return stamps, nil
}

// decodeStrictly takes one JSON object of known fields in true UTF-8, in which
// encoding/json would replace what is none.
func decodeStrictly(raw []byte, into any) error {
	if !utf8.Valid(raw) {
		return errors.New("not UTF-8")
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil {
		return err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something follows the JSON object")
	}
	return nil
}
