package console

import (
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"
)

const (
	// What waits for one viewer at most; beyond it, it is given the whole picture
	// once it has caught up.
	maxQueued      = 8
	maxQueuedBytes = 4 << 20
	// heartbeat keeps proxies from cutting a silent stream.
	heartbeat = 15 * time.Second
	// patience is how long one write may take.
	patience = 15 * time.Second
)

// viewer is one open page. The hub puts messages in, its own goroutine sends them.
type viewer struct {
	hub      *hub
	keyspace string // as it was asked for
	wake     chan struct{}

	mu     sync.Mutex
	queue  [][]byte
	size   int
	behind bool // needs the whole picture
	idle   bool // has sent all there was
	ended  bool
}

// push gives a viewer one more step, if it can still use it.
func (v *viewer) push(msg []byte) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.behind {
		return
	}
	if len(v.queue) >= maxQueued || v.size+len(msg) > maxQueuedBytes && len(v.queue) > 0 {
		v.fallBehindLocked()
		return
	}
	v.putLocked(msg)
}

func (v *viewer) putLocked(msg []byte) {
	v.queue, v.size, v.idle = append(v.queue, msg), v.size+len(msg), false
	v.signal()
}

func (v *viewer) fallBehind() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.fallBehindLocked()
}

func (v *viewer) fallBehindLocked() { v.queue, v.size, v.behind = nil, 0, true }

// waits tells whether the viewer needs the whole picture and is ready for it.
func (v *viewer) waits() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.behind && v.idle
}

// begin gives a viewer the whole picture.
func (v *viewer) begin(full []byte) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.behind = false
	v.putLocked(full)
}

func (v *viewer) end() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.ended = true
	v.signal()
}

func (v *viewer) signal() {
	select {
	case v.wake <- struct{}{}:
	default:
	}
}

// take returns what is to be sent. When that is nothing, a viewer that is behind
// says that it is ready.
func (v *viewer) take() (msgs [][]byte, ended bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	msgs, v.queue, v.size = v.queue, nil, 0
	if len(msgs) == 0 && !v.idle {
		v.idle = true
		if v.behind {
			v.hub.poke()
		}
	}
	return msgs, v.ended
}

// feed serves one viewer until it goes or the server ends.
func (c *Console) feed(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" && site != "same-origin" && site != "none" {
		http.Error(w, "403: the feed is for this server's own pages", http.StatusForbidden)
		return
	}
	v, full, stopped := c.hub.join(r.URL.Query().Get("keyspace"))
	switch {
	case stopped:
		h.Set("Retry-After", "2")
		http.Error(w, "503: this server is stopping", http.StatusServiceUnavailable)
		return
	case full:
		h.Set("Retry-After", "30")
		http.Error(w, fmt.Sprintf("503: %d consoles are open at this server, which is the limit: close some, or open one at another server", maxViewers), http.StatusServiceUnavailable)
		return
	}
	defer c.hub.leave(v)
	h.Set("Content-Type", "text/event-stream; charset=utf-8")
	h.Set("X-Accel-Buffering", "no")
	if r.Method == http.MethodHead {
		return
	}
	if err := c.send(w, r, v); err != nil && r.Context().Err() == nil {
		c.log.Debug("a console was cut off", "addr", r.RemoteAddr, "error", err)
	}
}

func (c *Console) send(w http.ResponseWriter, r *http.Request, v *viewer) error {
	out := http.NewResponseController(w)
	write := func(msgs ...[]byte) error {
		// A server without deadlines, as in some tests, has no slow network either.
		_ = out.SetWriteDeadline(time.Now().Add(patience))
		for _, m := range msgs {
			if _, err := w.Write(m); err != nil {
				return err
			}
		}
		return out.Flush()
	}
	if err := write(c.hello(r)); err != nil {
		return err
	}
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	for {
		msgs, ended := v.take()
		if ended {
			return nil
		}
		if len(msgs) > 0 {
			if err := write(msgs...); err != nil {
				return err
			}
			continue
		}
		select {
		case <-v.wake:
		case <-beat.C:
			if err := write([]byte(":\n\n")); err != nil {
				return err
			}
		case <-r.Context().Done():
			return nil
		}
	}
}

// hello says where the page is and what its reader may do.
func (c *Console) hello(r *http.Request) []byte {
	raw, err := json.Marshal(struct {
		Protocol  int    `json:"protocol"`
		Server    string `json:"server"`
		ClusterID string `json:"cluster_id"`
		Version   string `json:"version"`
		Operator  bool   `json:"operator"`
		CLIServer string `json:"cli_server"`
	}{protocol, c.cfg.Server, c.cfg.Source.Status().GetClusterId(), c.cfg.Version, c.cfg.Operator(r), c.cfg.CLIServer})
	if err != nil {
		panic(fmt.Sprintf("encode hello: %v", err)) // strings and a number
	}
	return append(append([]byte("event: hello\ndata: "), raw...), "\n\n"...)
}
