package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/leasehold-dev/leasehold/ownership/fence/httpfence"
)

// send delivers one event and returns nil when the receiver has it. ctx is the
// handler's: the client's transport reads the stamp from it. A refusal matches
// fence.ErrStale.
func (r *relay) send(ctx context.Context, e event) error {
	if err := r.post(ctx, e); err != nil {
		return fmt.Errorf("deliver event %d: %w", e.Seq, err)
	}
	return nil
}

func (r *relay) post(ctx context.Context, e event) error {
	body, err := json.Marshal(e)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.endpoint+"/events", bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := r.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if err := httpfence.CheckResponse(resp); err != nil {
		return err
	}
	answer, err := io.ReadAll(io.LimitReader(resp.Body, 4<<10)) // also so that the connection can be used again
	if err != nil {
		return fmt.Errorf("read answer: %w", err)
	}
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("%s: %s", resp.Status, strings.TrimSpace(string(answer)))
	}
	return nil
}
