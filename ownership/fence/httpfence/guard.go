package httpfence

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/leasehold-dev/leasehold/ownership/fence"
)

// Guard is a fence.Guard at the other end of HTTP: it posts claims to a
// ClaimHandler. Give it to the worker library for the resource that the
// handler's writes go to. It is safe for concurrent use.
type Guard struct {
	url    string
	client *http.Client
}

// NewGuard returns a guard that claims at a URL. The client may be nil for
// http.DefaultClient; it must not have a Transport of this package that
// insists on stamps, because a claim is made before there is a handler's
// context. Redirects are followed within the host only.
func NewGuard(claimURL string, client *http.Client) (*Guard, error) {
	u, err := url.Parse(claimURL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("claim URL %.100q: want http:// or https:// and a host", claimURL)
	}
	if client == nil {
		client = http.DefaultClient
	}
	own := *client
	follow := own.CheckRedirect
	own.CheckRedirect = func(req *http.Request, via []*http.Request) error {
		if err := leaves(req); err != nil {
			return err
		}
		if follow != nil {
			return follow(req, via)
		}
		if len(via) >= 10 {
			return errors.New("stopped after 10 redirects")
		}
		return nil
	}
	return &Guard{url: claimURL, client: &own}, nil
}

// Claim implements fence.Guard, with one request for each MaxClaimStamps
// stamps. If a later request fails, what the earlier ones have claimed stays
// claimed, and the error is that of an unknown outcome.
func (g *Guard) Claim(ctx context.Context, stamps []fence.Stamp) error {
	for _, s := range stamps {
		if err := validate(s); err != nil {
			return err
		}
	}
	var refused []*fence.StaleError
	for todo := fence.Sorted(stamps); len(todo) > 0; {
		n := min(len(todo), MaxClaimStamps)
		r, err := g.post(ctx, todo[:n])
		if err != nil {
			return fmt.Errorf("claim %d stamps at %s: outcome unknown: %w", len(stamps), g.where(), err)
		}
		refused = append(refused, r...)
		todo = todo[n:]
	}
	if len(refused) > 0 {
		return &fence.ClaimError{Refused: refused}
	}
	return nil
}

// where is the URL without what may be secret in it.
func (g *Guard) where() string {
	u, err := url.Parse(g.url)
	if err != nil {
		return "the claim URL"
	}
	u.RawQuery = ""
	return u.Redacted()
}

func (g *Guard) post(ctx context.Context, stamps []fence.Stamp) ([]*fence.StaleError, error) {
	body := claimRequest{Stamps: make([]wireStamp, len(stamps))}
	for i, s := range stamps {
		body.Stamps[i] = toWire(s)
	}
	raw, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, g.url, bytes.NewReader(raw))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := g.client.Do(req)
	if err != nil {
		return nil, withoutURL(err)
	}
	defer resp.Body.Close()
	if err := CheckResponse(resp); err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusConflict {
		return nil, fmt.Errorf("status %s: want 200 or 409", resp.Status)
	}
	var answer claimAnswer
	if err := json.NewDecoder(io.LimitReader(resp.Body, 2*MaxClaimBytes)).Decode(&answer); err != nil {
		return nil, fmt.Errorf("answer is not that of a claim handler: %w", err)
	}
	return answer.refusals(stamps)
}

// refusals believes an answer only if it accounts for every stamp that was
// sent: something else that says 200 has claimed nothing.
func (a claimAnswer) refusals(sent []fence.Stamp) ([]*fence.StaleError, error) {
	if a.Claimed+len(a.Refused) != len(sent) {
		return nil, fmt.Errorf("answer accounts for %d claimed and %d refused of %d stamps", a.Claimed, len(a.Refused), len(sent))
	}
	asked := make(map[fence.Stamp]bool, len(sent))
	for _, s := range sent {
		asked[s] = true
	}
	var out []*fence.StaleError
	for _, r := range a.Refused {
		s, err := r.stamp()
		if err != nil {
			return nil, fmt.Errorf("refused stamp in the answer: %w", err)
		}
		current, ok := decimal(r.CurrentToken)
		known := r.Reason == fence.ReasonStale || r.Reason == fence.ReasonOtherOwner
		if !asked[s] || !ok || !known {
			return nil, fmt.Errorf("answer refuses %s with token %.40q and reason %.40q, which is no answer to this claim", s, r.CurrentToken, r.Reason)
		}
		out = append(out, &fence.StaleError{Stamp: s, Current: fence.Token(current), CurrentOwner: r.CurrentOwner, Reason: r.Reason})
	}
	return out, nil
}

// withoutURL drops the URL that net/http puts into its errors.
func withoutURL(err error) error {
	var ue *url.Error
	if errors.As(err, &ue) {
		return ue.Err
	}
	return err
}
