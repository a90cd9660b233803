package sidecar

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"time"
)

// serveWatch sends events as they happen: first a snapshot of all leases, or,
// after Last-Event-ID, what has happened since, if that is still known. Every
// event has an id to resume from. A comment now and then shows that the
// connection lives.
func (sh *shared) serveWatch(w http.ResponseWriter, r *http.Request, watches chan struct{}) {
	if _, p := readParams(r, sh.cfg.Keyspace.Partitions); p != nil {
		refuse(w, *p)
		return
	}
	select {
	case watches <- struct{}{}:
		defer func() { <-watches }()
	default:
		refuse(w, problem{Status: http.StatusServiceUnavailable, Field: "watches", Value: fmt.Sprint(maxWatches + 1), Limit: fmt.Sprintf("at most %d at a time", maxWatches)})
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	to := &stream{rc: http.NewResponseController(w), w: w, feed: sh.feed}
	if to.rc.SetReadDeadline(time.Time{}) != nil { // it was for the request
		return
	}
	last, resumed := sh.feed.parse(r.Header.Get("Last-Event-ID"))
	ticker := time.NewTicker(heartbeat)
	defer ticker.Stop()
	for {
		_, changed := sh.feed.head() // before looking: nothing is missed
		events, known := sh.feed.since(last)
		if !resumed || !known {
			v, id := sh.list()
			data, err := json.Marshal(v)
			if err != nil {
				return
			}
			events, last, resumed = []event{{id, "snapshot", data}}, id, true
		}
		for _, e := range events {
			to.put(e)
			last = e.id
		}
		if to.flush() != nil {
			return
		}
		select {
		case <-changed:
		case <-ticker.C:
			to.buf.WriteString(": alive\n\n")
		case <-r.Context().Done():
			return
		}
	}
}

// stream writes events to one watch.
type stream struct {
	rc   *http.ResponseController
	w    http.ResponseWriter
	feed *feed
	buf  bytes.Buffer
}

func (s *stream) put(e event) {
	fmt.Fprintf(&s.buf, "id: %s\nevent: %s\ndata: %s\n\n", s.feed.format(e.id), e.name, e.data)
}

// flush sends what has been put. A reader that takes too long is dropped: it
// comes back with the id of the last event it has read.
func (s *stream) flush() error {
	if s.buf.Len() == 0 {
		return nil
	}
	if err := s.rc.SetWriteDeadline(time.Now().Add(writeWithin)); err != nil {
		return err
	}
	if _, err := s.w.Write(s.buf.Bytes()); err != nil {
		return err
	}
	s.buf.Reset()
	return s.rc.Flush()
}
